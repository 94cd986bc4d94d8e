import type { Clock } from '../base/clock.ts';
import { codeOf, messageOf, TagferryError } from '../base/errors.ts';
import type { Logger } from '../base/logger.ts';
import { type Backoff, fullJitterMs } from '../base/retry.ts';

export interface PeriodicCheckParts {
  check(signal: AbortSignal): Promise<unknown>;
  /** Returns whether a check is possible now. If omitted, a check is always possible. */
  isPossible?(): boolean;
  everyMs: number;
  /** Delays after failures. */
  retry: Backoff;
  /** Delay after an error that requires manual action. Default: the same delays as after other failures. */
  rejectedMs?: number;
  /** Log event and message for failures, and for the first success after a failure. */
  failed: { event: string; message: string };
  restored: { event: string; message: string };
  clock: Clock;
  log: Logger;
}

const RETRY_FLOOR_MS = 500;
const LOGGED_FAILURES = 10;

/**
 * Runs a platform check at intervals, on request, and with increasing delays after failures. Logs the first failure and
 * every tenth failure. A missing login is reported by the session and not logged here.
 */
export class PeriodicCheck {
  readonly #parts: PeriodicCheckParts;
  readonly #stopping = new AbortController();
  #loop: Promise<void> | undefined;
  #wake: () => void = () => {};
  /** Whether a check was requested, or none has run since startup. */
  #isRequested = true;
  /** Whether the previous check failed because there was no session. */
  #awaitsSession = false;

  constructor(parts: PeriodicCheckParts) {
    this.#parts = parts;
  }

  start(signal: AbortSignal): void {
    this.#loop ??= this.#run(AbortSignal.any([signal, this.#stopping.signal]));
  }

  async stop(): Promise<void> {
    this.#stopping.abort();
    await this.#loop;
  }

  /** Runs a check now, or after the check in progress. */
  runSoon(): void {
    this.#isRequested = true;
    this.#wake();
  }

  /** Called when a check has become possible. Runs a check if one was requested. */
  nowPossible(): void {
    if (this.#isRequested) this.#wake();
  }

  /** Repeats a check that failed because there was no session. */
  signedIn(): void {
    if (this.#awaitsSession) this.#wake();
  }

  async #run(signal: AbortSignal): Promise<void> {
    const { check, isPossible, everyMs, failed, restored, clock, log } = this.#parts;
    let failures = 0;
    let isReported = false;
    while (!signal.aborted) {
      let waitMs = everyMs * (0.9 + 0.2 * clock.random());
      if (isPossible?.() ?? true) {
        this.#isRequested = false;
        try {
          await check(signal);
          if (isReported) log.info({ event: restored.event, failures }, restored.message);
          isReported = this.#awaitsSession = false;
          failures = 0;
        } catch (error) {
          if (signal.aborted) return;
          waitMs = Math.min(waitMs, this.#retryMs(error, failures));
          const code = codeOf(error);
          const isSignedIn = code !== 'platform.no_session';
          this.#awaitsSession = !isSignedIn;
          if (failures++ % LOGGED_FAILURES === 0 || (isSignedIn && !isReported)) {
            isReported ||= isSignedIn;
            const hint = error instanceof TagferryError ? error.hint : undefined;
            const fields = { event: failed.event, code, error: messageOf(error), failures, hint };
            log[isSignedIn ? 'warn' : 'debug'](fields, failed.message);
          }
        }
      }
      // While checks fail, a requested check waits for the retry delay.
      const isDue = this.#isRequested && failures === 0 && (isPossible?.() ?? true);
      if (!isDue) await this.#pause(waitMs, signal);
    }
  }

  #retryMs(error: unknown, failures: number): number {
    const { clock, rejectedMs, retry } = this.#parts;
    const isRetryable = !(error instanceof TagferryError) || error.retryable;
    if (!isRetryable && rejectedMs !== undefined) return rejectedMs;
    return fullJitterMs(failures, retry, () => clock.random(), RETRY_FLOOR_MS);
  }

  async #pause(ms: number, signal: AbortSignal): Promise<void> {
    const woken = new AbortController();
    this.#wake = () => woken.abort();
    await this.#parts.clock.sleep(ms, AbortSignal.any([signal, woken.signal])).catch(() => {});
    this.#wake = () => {};
  }
}
