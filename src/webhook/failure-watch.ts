import type { Clock } from '../base/clock.ts';
import { codeOf, messageOf } from '../base/errors.ts';
import type { Logger } from '../base/logger.ts';
import type { ApiCalls } from '../platform/client.ts';
import { DISABLED_AFTER_MS, failingRun, persistentFailure, readSpans } from './failing-deliveries.ts';
import type { Registered } from './registration-file.ts';

/** Deliveries that have failed for days. */
export interface FailingWebhook {
  webhook: number;
  sinceMs: number;
  /** Time left until the platform disables the webhook, in days. */
  daysLeft: number;
}

interface FailureWatchParts {
  platform: ApiCalls;
  registered(): Registered | undefined;
  clock: Clock;
  log: Logger;
}

const DAY_MS = 86_400_000;
/** Attempts for one event end after three days (platform 3.3): a week of failures is no passing outage. */
const WARNED_AFTER_MS = 7 * DAY_MS;
/** Covers the two weeks and the attempts of an event that occurred before. */
const READ_BACK_MS = 18 * DAY_MS;
/** One API call as long as nothing fails. */
const CHECK_EVERY_MS = 6 * 3_600_000;
const CHECK_FAILING_EVERY_MS = 3_600_000;
const RETRY_MS = 15 * 60_000;
const FIRST_CHECK_MS = 60_000;
const COMMAND = 'tagferry webhook resend --all-failed';

/**
 * Warns before the platform disables the webhook (platform 3.2), because all deliveries fail or because one event keeps failing. Reads the
 * failed deliveries, and the others only if some have failed for a week. Nothing is stored: the next start reads the list again.
 */
export class FailureWatch {
  readonly #parts: FailureWatchParts;
  readonly #stopping = new AbortController();
  #loop: Promise<void> | undefined;
  #failing: FailingWebhook | undefined;

  constructor(parts: FailureWatchParts) {
    this.#parts = parts;
  }

  start(): void {
    this.#loop ??= this.#run(this.#stopping.signal);
  }

  async stop(): Promise<void> {
    this.#stopping.abort();
    await this.#loop;
  }

  get failing(): FailingWebhook | undefined {
    return this.#failing;
  }

  /** Sentences for the health notes. */
  get notes(): string[] {
    if (!this.#failing) return [];
    const { webhook, sinceMs, daysLeft } = this.#failing;
    const since = new Date(sinceMs).toISOString().slice(0, 10);
    return [
      `deliveries of webhook ${webhook} have failed since ${since}, the platform disables it in ${daysLeft} days; fix the listener, then run \`${COMMAND}\``,
    ];
  }

  async #run(signal: AbortSignal): Promise<void> {
    const { clock } = this.#parts;
    let waitMs = FIRST_CHECK_MS;
    while (!signal.aborted) {
      await clock.sleep(waitMs, signal).catch(() => {});
      if (signal.aborted) return;
      waitMs = (await this.#check(signal)) * (0.9 + 0.2 * clock.random());
    }
  }

  /** Returns the time until the next check. */
  async #check(signal: AbortSignal): Promise<number> {
    const registered = this.#parts.registered();
    if (!registered) return RETRY_MS;
    try {
      this.#note(await this.#read(registered, signal));
      return this.#failing ? CHECK_FAILING_EVERY_MS : CHECK_EVERY_MS;
    } catch (error) {
      const fields = { event: 'webhook.failures_unread', code: codeOf(error), error: messageOf(error) };
      if (!signal.aborted) this.#parts.log.debug(fields, 'failed to read failed deliveries, retrying');
      return RETRY_MS;
    }
  }

  async #read(registered: Registered, signal: AbortSignal): Promise<FailingWebhook | undefined> {
    const { platform, clock } = this.#parts;
    const occurredFrom = new Date(clock.wallMs() - READ_BACK_MS).toISOString();
    const failed = await readSpans(platform, registered, { status: 'failed', occurredFrom }, signal);
    const nowMs = failed.platformMs ?? clock.wallMs();
    if (!failed.spans.some(({ failing, firstMs }) => failing && nowMs - firstMs >= WARNED_AFTER_MS)) return undefined;
    const { spans } = await readSpans(platform, registered, { occurredFrom }, signal);
    const run = failingRun(spans) ?? persistentFailure(spans, nowMs);
    if (!run || nowMs - run.firstMs < WARNED_AFTER_MS) return undefined;
    const daysLeft = Math.max(0, Math.ceil((run.firstMs + DISABLED_AFTER_MS - nowMs) / DAY_MS));
    return { webhook: registered.webhook, sinceMs: run.firstMs, daysLeft };
  }

  #note(failing: FailingWebhook | undefined): void {
    const { log } = this.#parts;
    const before = this.#failing;
    this.#failing = failing;
    if (failing && failing.daysLeft !== before?.daysLeft) {
      const { webhook, sinceMs, daysLeft } = failing;
      const since = new Date(sinceMs).toISOString();
      const fields = { event: 'webhook.failing', webhook, since, daysLeft, hint: `Run \`${COMMAND}\`.` };
      log.warn(fields, 'deliveries keep failing, the platform will disable the webhook');
    }
    if (!failing && before) {
      log.info({ event: 'webhook.failing_over', webhook: before.webhook }, 'webhook deliveries restored');
    }
  }
}
