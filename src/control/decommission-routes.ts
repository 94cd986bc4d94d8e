/**
 * Control routes of `tagferry decommission`: a report of the values and events that would be lost, and the operation.
 *
 *   ingestion stops ──► buffer drains ──► webhook deleted ──► folder marked ──► agent exits with 78, tokens revoked
 *                             └─ values remain, caller disconnects, any failure: ingestion resumes, nothing is marked
 *
 * The folder is marked last. If the agent crashes before that, it starts normally and registers its webhook again.
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
    /** Stops ingestion. Resolves when all requests have received a response. */
    pause(): Promise<void>;
    resume(): Promise<void>;
  };
  /** WEBHOOK_URL, and whether its webhook was registered manually (WEBHOOK_SECRET) and is therefore not deleted. */
  webhook: { url: string | undefined; byHand: boolean };
  stateDir: string;
  tryPosting(): void;
  /** Stops the agent with exit status 78. */
  leave(): void;
  clock: Clock;
  log: Logger;
}

/** Events and webhooks affected by decommissioning. `buffer/ls` lists the values. */
export interface DecommissionOutlook {
  /** Number of events whose reaction has not run. */
  events: number;
  webhooks: ListedWebhook[];
  /** Reason why the webhooks could not be listed. */
  webhooks_unknown?: string;
}

/** A line of the response to `decommission/run`. */
export type DecommissionStep =
  | { waiting: number; quarantined: number }
  | { failed: string; code: string; hint?: string | undefined }
  | { decommissioned: boolean; waiting: number; quarantined: number; webhook?: number; webhook_problem?: string };

const POLL_MS = 200;
const REPORT_MS = 2_000;
const MAX_TIMEOUT_MS = 7 * 86_400_000;

export function decommissionRoutes(parts: DecommissionParts): ControlRoutes {
  const { buffer, clock, log, registration, sources, webhook } = parts;
  let isRunning = false;

  const left = () => ({
    waiting: buffer.bufferedValues + buffer.committer.waitingValues,
    quarantined: buffer.facts.quarantined,
  });

  async function drain(timeoutMs: number, signal: AbortSignal, report: () => Promise<void>): Promise<void> {
    const endMs = clock.monotonicMs() + timeoutMs;
    let reportedMs = Number.NEGATIVE_INFINITY;
    while (left().waiting > 0 && clock.monotonicMs() < endMs) {
      if (clock.monotonicMs() - reportedMs >= REPORT_MS) {
        await report();
        reportedMs = clock.monotonicMs();
      }
      await clock.sleep(POLL_MS, signal);
    }
    signal.throwIfAborted();
  }

  /** Returns the deleted webhook. With `loseValues`, a failure is returned instead of thrown. */
  async function deleteWebhook(loseValues: boolean): Promise<{ webhook?: number; webhook_problem?: string }> {
    if (webhook.url === undefined) return {};
    if (webhook.byHand) return { webhook_problem: 'registered manually (WEBHOOK_SECRET): delete it on the platform' };
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
    report: (step: DecommissionStep) => Promise<void>,
  ): Promise<DecommissionStep> {
    let isOver = false;
    log.warn(
      { event: 'decommission.started', ...left(), timeoutMs, loseValues },
      'decommissioning started, no longer accepting values',
    );
    try {
      await sources.pause();
      parts.tryPosting();
      await drain(timeoutMs, signal, () => report(left()));
      const { waiting, quarantined } = left();
      if (waiting + quarantined > 0 && !loseValues) return { decommissioned: false, waiting, quarantined };
      const deleted = await deleteWebhook(loseValues);
      await markDecommissioned(parts.stateDir, clock.wallMs()).catch((error: unknown) => {
        if (deleted.webhook !== undefined) void registration.register().catch(() => {});
        throw error;
      });
      isOver = true;
      log.warn({ event: 'decommission.done', waiting, quarantined, ...deleted }, 'gateway decommissioned');
      return { decommissioned: true, waiting, quarantined, ...deleted };
    } finally {
      if (!isOver) {
        log.warn({ event: 'decommission.given_up', ...left() }, 'decommissioning cancelled, accepting values again');
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
      if (typeof timeoutMs !== 'number' || !(timeoutMs >= 0 && timeoutMs <= MAX_TIMEOUT_MS))
        throw new UsageError('the timeout must be at most one week', 'Use a value such as 10m or 2h.');
      if (isRunning) throw new UsageError('a decommission is already in progress');
      isRunning = true;
      const report = (step: DecommissionStep) => write(`${JSON.stringify(step)}\n`);
      try {
        const outcome = await end({ timeoutMs, loseValues: loseValues === true }, signal, report);
        if ('decommissioned' in outcome && outcome.decommissioned) parts.leave();
        await report(outcome).catch(() => {});
      } catch (error) {
        const { code, hint } = error instanceof TagferryError ? error : { code: 'failed', hint: undefined };
        await report({ failed: messageOf(error), code, hint }).catch(() => {});
      } finally {
        isRunning = false;
      }
    },
  };
}
