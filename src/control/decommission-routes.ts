/**
 * What `tagferry decommission` asks of the running daemon: what would be lost, and the end itself.
 *
 *   intake stops ──► drain ──► webhook deleted ──► folder marked ──► the daemon ends with 78, its tokens revoked
 *                      └─ values left, a caller who left, any failure: intake goes on, nothing is marked
 *
 * The mark comes last: whatever a crash leaves before it starts again in service, and registers its webhook anew.
 */
import type { Clock } from '../base/clock.ts';
import { messageOf, TagferryError, UsageError } from '../base/errors.ts';
import type { Logger } from '../base/logger.ts';
import { markDecommissioned } from '../store/decommission-mark.ts';
import type { ListedWebhook, WebhookRegistration } from '../webhook/registration.ts';
import type { ControlRoutes } from './control-server.ts';

export interface DecommissionParts {
  buffer: {
    readonly bufferedValues: number;
    readonly committer: { readonly waitingValues: number };
    readonly facts: { readonly quarantined: number };
  };
  inbox: { stats(): Promise<{ waiting: number }> };
  registration: Pick<WebhookRegistration, 'list' | 'delete' | 'register'>;
  sources: {
    /** Takes nothing in any more; resolves when what was taken has its answer. */
    pause(): Promise<void>;
    resume(): Promise<void>;
  };
  /** WEBHOOK_URL, and whether its webhook was registered by hand (WEBHOOK_SECRET): then it is not deleted from here. */
  webhook: { url: string | undefined; byHand: boolean };
  stateDir: string;
  tryPosting(): void;
  /** Stops the daemon with exit status 78. */
  leave(): void;
  clock: Clock;
  log: Logger;
}

/** What would be lost beside the values, which `buffer/ls` tells. */
export interface DecommissionOutlook {
  /** Events whose reaction did not run yet. */
  events: number;
  webhooks: ListedWebhook[];
  /** Why the platform's webhooks are not known. */
  webhooks_unknown?: string;
}

/** A line of the answer to `decommission/run`. */
export type DecommissionStep =
  | { waiting: number; quarantined: number }
  | { failed: string; code: string; hint?: string | undefined }
  | { decommissioned: boolean; waiting: number; quarantined: number; webhook?: number; webhook_problem?: string };

const LOOK_EVERY_MS = 200;
const REPORT_EVERY_MS = 2_000;
const MAX_TIMEOUT_MS = 7 * 86_400_000;

export function decommissionRoutes(parts: DecommissionParts): ControlRoutes {
  const { buffer, clock, log, registration, sources, webhook } = parts;
  let isUnderWay = false;

  const left = () => ({
    waiting: buffer.bufferedValues + buffer.committer.waitingValues,
    quarantined: buffer.facts.quarantined,
  });

  async function drain(timeoutMs: number, signal: AbortSignal, tell: () => Promise<void>): Promise<void> {
    const endMs = clock.monotonicMs() + timeoutMs;
    let reportedMs = Number.NEGATIVE_INFINITY;
    while (left().waiting > 0 && clock.monotonicMs() < endMs) {
      if (clock.monotonicMs() - reportedMs >= REPORT_EVERY_MS) {
        await tell();
        reportedMs = clock.monotonicMs();
      }
      await clock.sleep(LOOK_EVERY_MS, signal);
    }
    signal.throwIfAborted();
  }

  /** Gives what was deleted; a failure only where values may be lost too, else it throws. */
  async function deleteWebhook(loseValues: boolean): Promise<{ webhook?: number; webhook_problem?: string }> {
    if (webhook.url === undefined) return {};
    if (webhook.byHand) return { webhook_problem: 'it was registered by hand (WEBHOOK_SECRET): delete it there' };
    try {
      const own = (await registration.list()).find((one) => one.own);
      if (!own) return {};
      await registration.delete();
      return { webhook: own.id };
    } catch (error) {
      if (!loseValues) throw error;
      return { webhook_problem: messageOf(error) };
    }
  }

  async function end(
    { timeoutMs, loseValues }: { timeoutMs: number; loseValues: boolean },
    signal: AbortSignal,
    tell: (step: DecommissionStep) => Promise<void>,
  ): Promise<DecommissionStep> {
    let isOver = false;
    log.warn({ event: 'decommission.started', ...left(), timeoutMs, loseValues }, 'no more values are taken in');
    try {
      await sources.pause();
      parts.tryPosting();
      await drain(timeoutMs, signal, () => tell(left()));
      const { waiting, quarantined } = left();
      if (waiting + quarantined > 0 && !loseValues) return { decommissioned: false, waiting, quarantined };
      const gone = await deleteWebhook(loseValues);
      await markDecommissioned(parts.stateDir, clock.wallMs()).catch((error: unknown) => {
        if (gone.webhook !== undefined) void registration.register().catch(() => {});
        throw error;
      });
      isOver = true;
      log.warn({ event: 'decommission.done', waiting, quarantined, ...gone }, 'this gateway is out of service');
      return { decommissioned: true, waiting, quarantined, ...gone };
    } finally {
      if (!isOver) {
        log.warn({ event: 'decommission.given_up', ...left() }, 'this gateway stays in service and takes values in');
        await sources.resume();
      }
    }
  }

  return {
    'decommission/look': async (): Promise<DecommissionOutlook> => {
      const { waiting: events } = await parts.inbox.stats();
      if (webhook.url === undefined) return { events, webhooks: [] };
      try {
        return { events, webhooks: (await registration.list()).filter((one) => one.own || one.left_behind) };
      } catch (error) {
        return { events, webhooks: [], webhooks_unknown: messageOf(error) };
      }
    },
    'decommission/run': async ({ timeout_ms: timeoutMs, lose_values: loseValues = false }, { signal, write }) => {
      if (typeof timeoutMs !== 'number' || !(timeoutMs >= 0 && timeoutMs <= MAX_TIMEOUT_MS)) {
        throw new UsageError('the timeout is longer than a week', 'Write 10m, or 2h.');
      }
      if (isUnderWay) throw new UsageError('a decommission is under way already');
      isUnderWay = true;
      const tell = (step: DecommissionStep) => write(`${JSON.stringify(step)}\n`);
      try {
        const outcome = await end({ timeoutMs, loseValues: loseValues === true }, signal, tell);
        if ('decommissioned' in outcome && outcome.decommissioned) parts.leave();
        await tell(outcome).catch(() => {});
      } catch (error) {
        const { code, hint } = error instanceof TagferryError ? error : { code: 'failed', hint: undefined };
        await tell({ failed: messageOf(error), code, hint }).catch(() => {});
      } finally {
        isUnderWay = false;
      }
    },
  };
}
