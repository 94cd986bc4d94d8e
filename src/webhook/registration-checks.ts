import type { Clock } from '../base/clock.ts';
import { codeOf, messageOf, TagferryError } from '../base/errors.ts';
import type { Logger } from '../base/logger.ts';
import { fullJitterMs } from '../base/retry.ts';

export interface RegistrationChecksParts {
  /** One check of the webhook on the platform. */
  check(signal: AbortSignal): Promise<void>;
  clock: Clock;
  log: Logger;
}

/** Three requests; disabling takes the platform two weeks, a person a second. */
const CHECK_EVERY_MS = 15 * 60_000;
const RETRY = { baseMs: 1_000, capMs: 60_000 };
/** A request that the platform rejects for good needs a person. */
const REJECTED_RETRY_MS = 5 * 60_000;

/** Runs the checks of the webhook: every 15 minutes, on request, and after failures with increasing delays. */
export class RegistrationChecks {
  readonly #parts: RegistrationChecksParts;
  readonly #stopping = new AbortController();
  #loop: Promise<void> | undefined;
  #wake: () => void = () => {};
  /** A check was requested while one was running. */
  #again = false;
  /** The previous check failed for lack of a session. */
  #awaitsSession = false;

  constructor(parts: RegistrationChecksParts) {
    this.#parts = parts;
  }

  start(signal: AbortSignal): void {
    this.#loop ??= this.#run(AbortSignal.any([signal, this.#stopping.signal]));
  }

  async stop(): Promise<void> {
    this.#stopping.abort();
    await this.#loop;
  }

  checkSoon(): void {
    this.#again = true;
    this.#wake();
  }

  signedIn(): void {
    if (this.#awaitsSession) this.#wake();
  }

  async #run(signal: AbortSignal): Promise<void> {
    const { check, clock, log } = this.#parts;
    let failures = 0;
    let isReported = false;
    while (!signal.aborted) {
      let waitMs = CHECK_EVERY_MS * (0.9 + 0.2 * clock.random());
      this.#again = false;
      try {
        await check(signal);
        if (isReported) log.info({ event: 'webhook.registration_restored', failures }, 'webhook registration restored');
        isReported = this.#awaitsSession = false;
        failures = 0;
      } catch (error) {
        if (signal.aborted) return;
        const retryable = !(error instanceof TagferryError) || error.retryable;
        waitMs = retryable ? fullJitterMs(failures, RETRY, () => clock.random(), 500) : REJECTED_RETRY_MS;
        // The first failure and then every tenth: an outage of a week is not ten thousand lines. The session reports that nobody is
        // signed in; the next failure after the login counts as the first.
        const isOwn = codeOf(error) !== 'platform.no_session';
        this.#awaitsSession = !isOwn;
        if (failures++ % 10 === 0 || (isOwn && !isReported)) {
          isReported ||= isOwn;
          const hint = error instanceof TagferryError ? error.hint : undefined;
          const fields = {
            event: 'webhook.registration_failed',
            code: codeOf(error),
            error: messageOf(error),
            failures,
            ...(hint ? { hint } : {}),
          };
          log[isOwn ? 'warn' : 'debug'](fields, 'failed to register the webhook, retrying');
        }
      }
      // A check requested during a failure waits for its turn.
      if (!this.#again || failures > 0) await this.#pause(waitMs, signal);
    }
  }

  /** Ends early when a check is requested. */
  async #pause(ms: number, signal: AbortSignal): Promise<void> {
    const woken = new AbortController();
    this.#wake = () => woken.abort();
    await this.#parts.clock.sleep(ms, AbortSignal.any([signal, woken.signal])).catch(() => {});
    this.#wake = () => {};
  }
}
