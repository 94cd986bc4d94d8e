import type { Action } from '../config/action-kinds.ts';
import type { ActionKind, ActionParts, Perform } from './action-kind.ts';
import { LOG } from './actions/log.ts';
import { POST } from './actions/post.ts';
import { PUBLISH } from './actions/publish.ts';
import { RUN } from './actions/run.ts';
import { WRITE } from './actions/write.ts';

/** All action kinds. To add a kind, add a file in `actions/` and an entry here. */
export const ACTION_KINDS: readonly ActionKind[] = [RUN, POST, PUBLISH, WRITE, LOG];

export function kindOf(action: Action): ActionKind {
  const kind = ACTION_KINDS.find((one) => one.kind === action.kind);
  if (!kind) throw new Error(`unknown action kind: ${action.kind}`);
  return kind;
}

/** Returns the function that the runner calls for each action. */
export function createPerformer(parts: ActionParts): Perform {
  return async (action, context) => {
    if (context.signal.aborted) return { outcome: 'interrupted' };
    return kindOf(action).perform(action, context, parts);
  };
}

/**
 * Returns unique names for a reaction's actions. Progress is stored by name, so that actions can be reordered by a
 * reload.
 */
export function nameActions(actions: readonly Action[]): string[] {
  const counts = new Map<string, number>();
  return actions.map((action) => {
    const name = kindOf(action).nameOf(action).slice(0, 200);
    const count = (counts.get(name) ?? 0) + 1;
    counts.set(name, count);
    return count === 1 ? name : `${name} (${count})`;
  });
}

/** Returns the receiver of an action, or `undefined` if the action always completes. */
export function targetOf(action: Action): string | undefined {
  return kindOf(action).targetOf?.(action);
}
