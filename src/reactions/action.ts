import type { Action } from '../config/reactions.ts';
import type { EventFacts } from './event-facts.ts';

/** What one action is given beside its own settings. */
export interface ActionContext {
  reaction: string;
  event: EventFacts;
  /** Fires when the daemon has no more time: what runs is ended, and runs again at the next start. */
  signal: AbortSignal;
}

/** How one action went. `detail` is short and holds no body and no secret. */
export interface ActionResult {
  outcome: 'done' | 'failed' | 'interrupted';
  detail?: string;
  /** It failed because the target did not respond in time. */
  timedOut?: boolean;
}

export type Perform = (action: Action, context: ActionContext) => Promise<ActionResult>;

/** What the journal and the log call an action: its kind and where it goes, without credentials. */
function nameAction(action: Action): string {
  switch (action.kind) {
    case 'run':
      return `run ${action.command.join(' ')}`.slice(0, 200);
    case 'post':
      return `post ${withoutCredentials(action.url)}`.slice(0, 200);
    case 'publish':
      return `publish ${action.broker} ${action.topic}`.slice(0, 200);
    case 'log':
      return `log ${action.level}`;
  }
}

/** The names of a reaction's actions, made distinct: progress is kept by name, so that a reload may move actions about. */
export function nameActions(actions: readonly Action[]): string[] {
  const seen = new Map<string, number>();
  return actions.map((action) => {
    const name = nameAction(action);
    const times = (seen.get(name) ?? 0) + 1;
    seen.set(name, times);
    return times === 1 ? name : `${name} (${times})`;
  });
}

function withoutCredentials(url: string): string {
  const parsed = URL.parse(url);
  if (!parsed) return '(unreadable address)';
  // The query may carry a key as well.
  return `${parsed.protocol}//${parsed.host}${parsed.pathname}`;
}
