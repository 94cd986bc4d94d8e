import type { Clock } from '../base/clock.ts';
import { messageOf } from '../base/errors.ts';
import type { Logger } from '../base/logger.ts';
import type { Redactor } from '../base/redactor.ts';
import type {
  Decision,
  KnownRegistration,
  MadeWebhook,
  RegistrationFile,
  RegistrationRecord,
} from './registration-file.ts';

/**
 * Stores the record of this gateway's webhook, its secrets, and the webhooks that this gateway has registered. A change
 * takes effect in memory before it is on disk, because a new secret must be accepted even if the disk is full.
 *
 * After a rotation, the previous secret is valid for an hour according to the wall clock, because the machine may be
 * off. If more than an hour is left, the clock was set back, and the secret expires immediately. No events are lost,
 * because the platform resends rejected deliveries.
 */
export interface KnownWebhookParts {
  file: RegistrationFile;
  clock: Clock;
  log: Logger;
  redactor: Redactor;
}

/** Validity of the previous secret after a rotation, for deliveries in progress. */
const PREVIOUS_VALID_MS = 3_600_000;
const MAX_MADE = 100;

export class KnownWebhook {
  readonly #parts: KnownWebhookParts;
  #known: KnownRegistration = { made: [] };
  #cancelPrevious: () => void = () => {};

  constructor(parts: KnownWebhookParts) {
    this.#parts = parts;
  }

  get record(): RegistrationRecord | undefined {
    return this.#known.record;
  }

  get decision(): Decision | undefined {
    return this.#known.decision;
  }

  get made(): readonly MadeWebhook[] {
    return this.#known.made;
  }

  /** Returns the secrets with which the platform may currently sign. */
  secrets(): string[] {
    const { secret, previous } = this.record ?? {};
    return [secret, previous].filter((one) => one !== undefined);
  }

  async load(): Promise<void> {
    const { file, log } = this.#parts;
    this.#known = await file.read((setAsideAs) =>
      log.warn(
        { event: 'webhook.record_set_aside', setAsideAs },
        'failed to read the webhook record, resetting the secret',
      ),
    );
    this.#parts.redactor.learn(...this.secrets());
    this.#endPreviousInTime();
  }

  stop(): void {
    this.#cancelPrevious();
  }

  /** Stores a command for this gateway's webhook; `undefined` removes it. */
  decide(decision: Decision | undefined): Promise<void> {
    return decision === this.decision ? Promise.resolve() : this.#keep({ ...this.#known, decision });
  }

  /** Records that a registration will be requested. */
  beginMaking(url: string): Promise<void> {
    return this.#keep({ ...this.#known, making: url });
  }

  /** Records that the platform has rejected the registration. */
  endMaking(): Promise<void> {
    return this.#keep({ ...this.#known, making: undefined });
  }

  /** Records a webhook that exists on the platform. */
  adopt(record: RegistrationRecord): Promise<void> {
    if (this.#isMade(record)) return this.keepMade(record);
    return this.#keep({ ...this.#known, record, making: undefined });
  }

  keep(record: RegistrationRecord): Promise<void> {
    return this.#keep({ ...this.#known, record });
  }

  /** Records a webhook that this gateway has registered. */
  keepMade(record: RegistrationRecord): Promise<void> {
    const { webhook, url } = record;
    const others = this.made.filter((one) => one.webhook !== webhook);
    const made = [...others, { webhook, url }].slice(-MAX_MADE);
    return this.#keep({ ...this.#known, record, made, making: undefined });
  }

  /** Records a new secret. The previous secret remains valid for an hour. */
  async keepSecret(secret: string): Promise<void> {
    const record = this.record!;
    const previous = record.secret;
    const previousUntilMs = previous === undefined ? undefined : this.#parts.clock.wallMs() + PREVIOUS_VALID_MS;
    await this.keep({ ...record, resetting: undefined, secret, previous, previousUntilMs });
    this.#endPreviousInTime();
  }

  /** Removes a deleted webhook and the command that applies to it. */
  forget(webhook: number): Promise<void> {
    const { record, decision } = this.#known;
    const isOwn = record?.webhook === webhook;
    return this.#keep({
      ...this.#known,
      record: isOwn ? undefined : record,
      decision: isOwn ? undefined : decision,
      made: this.made.filter((one) => one.webhook !== webhook),
    });
  }

  #isMade({ webhook, url }: RegistrationRecord): boolean {
    const { made, making } = this.#known;
    return made.some((one) => one.webhook === webhook) || making === url;
  }

  #endPreviousInTime(): void {
    this.#cancelPrevious();
    const { previous, previousUntilMs = 0 } = this.record ?? {};
    if (previous === undefined) return;
    const leftMs = previousUntilMs - this.#parts.clock.wallMs();
    if (leftMs <= 0 || leftMs > PREVIOUS_VALID_MS) this.#endPrevious();
    else this.#cancelPrevious = this.#parts.clock.after(leftMs, () => this.#endPrevious());
  }

  #endPrevious(): void {
    const { record } = this;
    if (!record) return;
    this.keep({ ...record, previous: undefined, previousUntilMs: undefined }).catch((error) =>
      this.#parts.log.error(
        { event: 'webhook.record_failed', error: messageOf(error) },
        'failed to remove the previous secret from disk',
      ),
    );
  }

  #keep(known: KnownRegistration): Promise<void> {
    this.#known = known;
    this.#parts.redactor.learn(...this.secrets());
    return this.#parts.file.write(known);
  }
}
