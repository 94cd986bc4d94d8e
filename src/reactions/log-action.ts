import type { Logger } from '../base/logger.ts';
import type { Action } from '../config/reactions.ts';
import type { ActionContext, ActionResult } from './action.ts';
import { valuesAt } from './content-path.ts';

/** Writes the event's main fields to the log. Never the whole payload: personal data stays out of the journal. */
export function logEvent(
  action: Extract<Action, { kind: 'log' }>,
  context: ActionContext,
  logger: Logger,
): ActionResult {
  const { event } = context;
  const first = (path: string) => {
    const value = valuesAt(event.content, path)[0];
    if (typeof value === 'string') return value.slice(0, 200);
    return typeof value === 'number' ? value : undefined;
  };
  logger[action.level](
    {
      event: 'reaction.log',
      reaction: context.reaction,
      inboxId: event.id,
      digest: event.digest,
      eventType: event.eventType,
      occurredAt: isoOf(event.occurredAtMs),
      asset: event.assets[0],
      instrumentation: event.instrumentations[0],
      tag: event.tag?.slice(0, 200),
      key: first('data.key'),
      value: first('data.value'),
      threshold: first('threshold.name'),
      thresholdType: first('threshold.type'),
    },
    'a reaction met its event',
  );
  return { outcome: 'done' };
}

function isoOf(ms: number | undefined): string | undefined {
  return ms === undefined || Math.abs(ms) > 8.64e15 ? undefined : new Date(ms).toISOString();
}
