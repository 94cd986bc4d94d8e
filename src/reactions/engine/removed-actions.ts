import type { Reaction } from '../../config/reactions.ts';
import { nameActions } from '../actions.ts';
import type { EventFacts } from '../event-facts.ts';
import { type InboxEvent, logJournalError } from '../journal.ts';
import type { Progress } from './progress.ts';
import type { ReactionRunOptions } from './reaction-run.ts';

/** An attempted action that will not be retried, because it is no longer configured for the event. */
export interface RemovedAction {
  reaction: string;
  action: string;
  /** The latest failure, if known, and the change that prevents a retry. */
  detail: string;
}

/** Returns the attempted actions that were removed by a configuration change before they completed. */
export function removedActions(
  progress: Progress,
  { configured, matching }: { configured: readonly Reaction[]; matching: readonly Reaction[] },
): RemovedAction[] {
  return progress.retriedActions().flatMap(({ reaction, action, detail }) => {
    const hasName = ({ name }: Reaction) => name === reaction;
    const remaining = matching.filter(hasName);
    if (remaining.some(({ actions }) => nameActions(actions).includes(action))) return [];
    let reason = 'reaction removed from reactions.yaml';
    if (remaining.length > 0) reason = 'action removed from reactions.yaml';
    else if (configured.some(hasName)) reason = 'reaction no longer matches the event';
    return [{ reaction, action, detail: detail === undefined ? reason : `${detail}; ${reason}` }];
  });
}

/** Records the removed actions of an event as dead, and logs each of them. Disk errors are only logged. */
export async function endRemovedActions(
  open: { event: InboxEvent; facts: EventFacts; progress: Progress; removed: readonly RemovedAction[] },
  options: Pick<ReactionRunOptions, 'clock' | 'logger' | 'repeats' | 'journal' | 'onOutcome'>,
): Promise<void> {
  const { clock, logger, journal, onOutcome } = options;
  const { event, facts, progress, removed } = open;
  const { id: inboxId, digest, eventType } = event;
  for (const { reaction, action, detail } of removed) {
    const attempt = { reaction, action, outcome: 'dead', detail, durationMs: 0, atMs: clock.wallMs() };
    await journal
      .record(inboxId, progress.end(reaction, action, 'dead'), attempt)
      .catch((error) => logJournalError(error, { reaction, inboxId, digest }, options));
    const about = { event: 'reaction.dead', reaction, inboxId, digest, eventType, object: facts.object };
    const fields = { action, error: detail, tries: progress.tries(reaction, action) };
    logger.error({ ...about, ...fields }, 'action is no longer configured, it will not be retried');
  }
  for (const reaction of new Set(removed.map((one) => one.reaction))) onOutcome(reaction, 'dead');
}
