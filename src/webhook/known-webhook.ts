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
 * What this gateway knows of its webhook: the record and its secrets, and which webhooks it has registered itself. The file
 * is the truth across restarts; in memory first, because a secret that the platform has given must be accepted even while the
 * disk refuses it.
 *
 * The secret before a rotation counts for an hour of its own, not anew at each start. Its end is by the wall clock, since the
 * machine may be off meanwhile; where that says more than the hour, the clock has jumped back and the secret ends at once:
 * what is refused for it the platform sends again, signed with the new one.
 */
export interface KnownWebhookParts {
  file: RegistrationFile;
  clock: Clock;
  log: Logger;
  redactor: Redactor;
}

/** Deliveries under way at a rotation have arrived by then; later ones come by the deliveries list. A leaked secret dies as soon. */
const PREVIOUS_VALID_MS = 3_600_000;
/** More than any person registers by changing addresses; the oldest are forgotten. */
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

  /** Secrets that the platform may sign with now. */
  secrets(): string[] {
    const { secret, previous } = this.record ?? {};
    return [secret, previous].filter((one) => one !== undefined);
  }

  async load(): Promise<void> {
    const { file, log } = this.#parts;
    this.#known = await file.read((setAsideAs) =>
      log.warn(
        { event: 'webhook.record_set_aside', setAsideAs },
        'the record of the webhook could not be read; its secret is reset',
      ),
    );
    this.#parts.redactor.learn(...this.secrets());
    this.#endPreviousInTime();
  }

  stop(): void {
    this.#cancelPrevious();
  }

  /** Keeps a person's decision on this gateway's webhook; `undefined` removes it. */
  decide(decision: Decision | undefined): Promise<void> {
    const { decision: before, ...rest } = this.#known;
    if (decision === before) return Promise.resolve();
    return this.#keep(decision === undefined ? rest : { ...rest, decision });
  }

  /** Before a registration is asked for. */
  beginMaking(url: string): Promise<void> {
    return this.#keep({ ...this.#known, making: url });
  }

  /** The platform has refused it: nothing with that address is of this gateway's making. */
  endMaking(): Promise<void> {
    const { making: _, ...rest } = this.#known;
    return this.#keep(rest);
  }

  /** A webhook that was there: counted as made here where it was. */
  adopt(record: RegistrationRecord): Promise<void> {
    if (this.#isMade(record)) return this.keepMade(record);
    return this.#keep({ record, made: this.made, ...this.#decided });
  }

  keep(record: RegistrationRecord): Promise<void> {
    return this.#keep({ ...this.#known, record });
  }

  /** The webhook is there, and this gateway has registered it. */
  keepMade(record: RegistrationRecord): Promise<void> {
    const { webhook, url } = record;
    const others = this.made.filter((one) => one.webhook !== webhook);
    return this.#keep({ record, made: [...others, { webhook, url }].slice(-MAX_MADE), ...this.#decided });
  }

  /** The platform gave another secret; the one before counts on for an hour. */
  async keepSecret(secret: string): Promise<void> {
    const { resetting: _, previous: __, previousUntilMs: ___, secret: before, ...rest } = this.record!;
    const previousUntilMs = this.#parts.clock.wallMs() + PREVIOUS_VALID_MS;
    await this.keep({ ...rest, secret, ...(before === undefined ? {} : { previous: before, previousUntilMs }) });
    this.#endPreviousInTime();
  }

  /** A webhook was deleted on the platform; a decision on this gateway's own one ends with it. */
  forget(webhook: number): Promise<void> {
    const { record, made, decision, ...rest } = this.#known;
    const isOwn = record?.webhook === webhook;
    return this.#keep({
      ...rest,
      ...(record && !isOwn ? { record } : {}),
      ...(decision && !isOwn ? { decision } : {}),
      made: made.filter((one) => one.webhook !== webhook),
    });
  }

  get #decided(): { decision?: Decision } {
    const { decision } = this.#known;
    return decision === undefined ? {} : { decision };
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
    const { previous: _, previousUntilMs: __, ...rest } = record;
    this.keep(rest).catch((error) =>
      this.#parts.log.error(
        { event: 'webhook.record_failed', error: messageOf(error) },
        'the old secret stays on disk',
      ),
    );
  }

  #keep(known: KnownRegistration): Promise<void> {
    this.#known = known;
    this.#parts.redactor.learn(...this.secrets());
    return this.#parts.file.write(known);
  }
}
