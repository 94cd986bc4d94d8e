import { randomUUID } from 'node:crypto';
import type { Clock } from '../clock.ts';
import type { Webhook } from '../contract/webhooks.ts';
import { codeOf, messageOf, PlatformError, TagferryError, UsageError } from '../errors.ts';
import type { Logger } from '../logger.ts';
import { fullJitterMs } from '../retry.ts';
import { type DriftStep, findDrift, sameAddress } from './drift.ts';
import type { Filters } from './filters.ts';
import { Mending } from './mending.ts';
import { type PlatformPort, RefusedError } from './platform-port.ts';
import type { RegistrationFile, RegistrationRecord } from './registration-file.ts';
import { WebhookResource } from './webhook-resource.ts';

/**
 * This gateway's webhook on the platform: made once, kept as the configuration wants it, its secret known here.
 *
 * States: unknown (no record; the listener answers 503), registered (record with a secret), resetting (record whose secret may be
 * dead). A reset is written down before it is asked for, and its answer before it is used: a crash in between leaves
 * `resetting`, and the next start resets again, so a listener that refuses everything lasts until the platform can be reached. During
 * and for an hour after a rotation both secrets are valid. A crash between creation and record leaves a webhook whose secret is
 * unknown: found by its address at the next start, and reset. With a WEBHOOK_SECRET nothing is created, reset or deleted.
 */
export interface RegistrationOptions {
  /** WEBHOOK_URL; `undefined` registers nothing. */
  url: string | undefined;
  /** WEBHOOK_SECRET. */
  secret: string | undefined;
  eventTypes: readonly string[];
  /** What the rules need (`filtersFor`); left out, the webhook's own filters stay. */
  properties?: Filters;
  /** CLIENT_APPLICATION; `undefined` takes the current one. */
  application: string | undefined;
}

export interface RegistrationParts {
  platform: PlatformPort;
  file: RegistrationFile;
  clock: Clock;
  log: Logger;
  /** The webhook is as it should be; called after every check that said so. */
  registered?: () => void;
}

/** The webhook that is registered, for the catch-up. */
export interface Registered {
  application: number;
  webhook: number;
  scope: string;
}

/** A webhook as `webhook ls` shows it. */
export interface ListedWebhook extends Webhook {
  /** It is this gateway's. */
  own: boolean;
}

/** Three requests; disabling takes the platform two weeks, a person a second. */
const CHECK_EVERY_MS = 15 * 60_000;
const RETRY = { baseMs: 1_000, capMs: 60_000 };
/** What the platform refuses with 4xx a person has to mend. */
const REFUSED_RETRY_MS = 5 * 60_000;
/** Deliveries under way at a rotation have arrived by then; later ones come by the deliveries list. A leaked secret dies as soon. */
const PREVIOUS_VALID_MS = 3_600_000;

export class WebhookRegistration {
  readonly #options: RegistrationOptions;
  readonly #parts: RegistrationParts;
  readonly #resource: WebhookResource;
  readonly #mending: Mending;
  #record: RegistrationRecord | undefined;
  #application: number | undefined;
  /** Calls that change the webhook, one after the other. */
  #turn: Promise<unknown> = Promise.resolve();
  #loop: Promise<void> | undefined;
  readonly #stopping = new AbortController();
  #wake: () => void = () => {};
  /** Somebody asked for a check while one was under way. */
  #again = false;
  /** The last check failed because nobody was signed in. */
  #awaitsSession = false;
  #filters: Filters | undefined;
  /** A person disabled or deleted it by a verb: left alone until they say otherwise or the next start. */
  #leftAlone = false;
  #ready = false;
  #cancelPrevious: () => void = () => {};

  constructor(options: RegistrationOptions, parts: RegistrationParts) {
    this.#options = options;
    this.#parts = parts;
    this.#filters = options.properties;
    this.#resource = new WebhookResource(parts.platform);
    this.#mending = new Mending(this.#resource, parts.log);
  }

  /** Secrets that a signature may be made with, now. None: the listener answers 503. */
  secrets(): readonly string[] {
    if (this.#options.secret) return [this.#options.secret];
    return [this.#record?.secret, this.#record?.previous].filter((secret) => secret !== undefined);
  }

  /** `undefined` until the webhook was found or made. */
  current(): Registered | undefined {
    if (!this.#ready || !this.#record || this.#application === undefined) return undefined;
    return { application: this.#application, webhook: this.#record.webhook, scope: this.#record.scope };
  }

  /** Reads what is known, so that the listener can begin, then registers in the background for as long as it takes. */
  async start(signal: AbortSignal): Promise<void> {
    signal.addEventListener('abort', () => this.#stopping.abort(), { once: true });
    await this.load();
    if (!this.#options.url || this.#loop) return;
    this.#loop = this.#run(this.#stopping.signal);
  }

  async stop(): Promise<void> {
    this.#stopping.abort();
    this.#cancelPrevious();
    await this.#loop;
  }

  /** Reads the record, for verbs without a daemon. */
  async load(): Promise<void> {
    this.#record = await this.#parts.file.read((setAsideAs) =>
      this.#parts.log.warn(
        { event: 'webhook.record_set_aside', setAsideAs },
        'the record of the webhook could not be read; its secret is reset',
      ),
    );
    if (this.#record?.previous) this.#endPreviousLater();
  }

  /** Looks again soon: the deliveries list answered 404, or the platform is back. */
  checkSoon(): void {
    this.#again = true;
    this.#wake();
  }

  /** The technical user is signed in: a check that could not be made for want of that is made now. */
  signedIn(): void {
    if (this.#awaitsSession) this.#wake();
  }

  /** Filters of rules as they stand after a reload: the webhook gets them at once, or as soon as the platform can be reached. */
  setFilters(filters: Filters): void {
    if (JSON.stringify(filters) === JSON.stringify(this.#filters)) return;
    this.#filters = filters;
    this.checkSoon();
  }

  /** Makes the webhook as it should be, once. What the loop does, and `webhook register`. */
  register(): Promise<Registered> {
    this.#leftAlone = false;
    return this.#inTurn(() => this.#ensure());
  }

  /** All webhooks of the client application. */
  async list(): Promise<ListedWebhook[]> {
    const { url } = this.#options;
    const webhooks = await this.#resource.list(await this.#findApplication());
    return webhooks.map((webhook) => ({
      ...webhook,
      own: webhook.id === this.#record?.webhook || (url !== undefined && sameAddress(webhook.url, url)),
    }));
  }

  /** `webhook enable`. Without an id this gateway's own. */
  enable(id?: number): Promise<void> {
    this.#leftAlone = false;
    return this.#inTurn(async () => {
      const { application, webhook } = await this.#target(id);
      await this.#resource.change(application, webhook, { disabled: false });
    });
  }

  /** `webhook disable`: stays so until `enable`, `register` or the next start. */
  disable(id?: number): Promise<void> {
    return this.#inTurn(async () => {
      const { application, webhook, own } = await this.#target(id);
      if (own) this.#leftAlone = true;
      await this.#resource.change(application, webhook, { disabled: true });
    });
  }

  /** A new secret from the platform; the old one stays valid for an hour. */
  rotateSecret(): Promise<void> {
    this.#refuseByHand('rotated', 'change it on the platform, then in WEBHOOK_SECRET');
    return this.#inTurn(async () => {
      const { application, webhook } = await this.#target(undefined);
      if (!this.#record) throw notRegistered();
      await this.#resetSecret(application, { ...this.#record, webhook }).catch((error) => {
        // The platform may have reset it, and its answer is lost: deliveries are refused until it is reset again.
        const fields = { event: 'webhook.reset_failed', code: codeOf(error), error: messageOf(error) };
        this.#parts.log.warn(fields, 'nobody knows whether the secret was reset: it is reset again');
        this.checkSoon();
        throw error;
      });
    });
  }

  /** There is one, and it is surely the platform's. */
  get isSecretKnown(): boolean {
    return this.secrets().length > 0 && this.#record?.resetting !== true;
  }

  /** `webhook delete`: this gateway's own unless an id is given; not made again until `register` or the next start. */
  delete(id?: number): Promise<void> {
    if (id === undefined) this.#refuseByHand('deleted', 'delete it where it was registered');
    return this.#inTurn(async () => {
      const { application, webhook, own } = await this.#target(id);
      if (own) {
        this.#refuseByHand('deleted', 'delete it where it was registered');
        this.#leftAlone = true;
      }
      await this.#resource.delete(application, webhook);
      if (!own) return;
      this.#record = undefined;
      this.#ready = false;
      await this.#parts.file.remove();
    });
  }

  async #run(signal: AbortSignal): Promise<void> {
    const { clock, log } = this.#parts;
    let failures = 0;
    let said = false;
    while (!signal.aborted) {
      let waitMs = CHECK_EVERY_MS * (0.9 + 0.2 * clock.random());
      this.#again = false;
      try {
        if (!this.#leftAlone) {
          await this.#inTurn(() => this.#ensure(signal));
          this.#parts.registered?.();
        }
        if (said) log.info({ event: 'webhook.registration_mended', failures }, 'the webhook is as it should be again');
        said = this.#awaitsSession = false;
        failures = 0;
      } catch (error) {
        if (signal.aborted) return;
        const retryable = !(error instanceof TagferryError) || error.retryable;
        waitMs = retryable ? fullJitterMs(failures, RETRY, () => clock.random(), 500) : REFUSED_RETRY_MS;
        // The first, then every tenth: an outage of a week is not ten thousand lines. That nobody is signed in, the session says;
        // what comes after the login is a first again.
        const isOwn = codeOf(error) !== 'platform.no_session';
        this.#awaitsSession = !isOwn;
        if (failures++ % 10 === 0 || (isOwn && !said)) {
          said ||= isOwn;
          const hint = error instanceof TagferryError ? error.hint : undefined;
          const fields = {
            event: 'webhook.registration_failed',
            code: codeOf(error),
            error: messageOf(error),
            failures,
          };
          const words = 'the webhook could not be registered; it is tried again';
          log[isOwn ? 'warn' : 'debug']({ ...fields, ...(hint ? { hint } : {}) }, words);
        }
      }
      // What was asked for in the middle of a failure waits for its turn like everything else.
      if (!this.#again || failures > 0) await this.#pause(waitMs, signal);
    }
  }

  /** Ends early when somebody asks for a check. */
  async #pause(ms: number, signal: AbortSignal): Promise<void> {
    const woken = new AbortController();
    this.#wake = () => woken.abort();
    await this.#parts.clock.sleep(ms, AbortSignal.any([signal, woken.signal])).catch(() => {});
    this.#wake = () => {};
  }

  async #ensure(signal?: AbortSignal): Promise<Registered> {
    const { url, secret, eventTypes } = this.#options;
    const properties = this.#filters;
    if (!url) throw new UsageError('WEBHOOK_URL is empty: there is no address to register');
    const application = await this.#findApplication(signal);
    const found = await this.#resource.list(application, signal).catch((error) => {
      // The application may be another by now: find it again the next time.
      if (error instanceof RefusedError && error.status === 404) this.#application = undefined;
      throw error;
    });
    const wanted = { url, eventTypes, ...(properties ? { properties } : {}), byHand: Boolean(secret) };
    const step = findDrift(found, this.#record, wanted);
    if (step.kind === 'missing') throw notRegistered();
    this.#warnOfFormer(found, url);
    if (step.kind === 'create') await this.#create(application, signal);
    else await this.#adopt(application, url, step, signal);
    this.#ready = true;
    return this.current()!;
  }

  /** Not disabled from here: with a copied state folder it may be another gateway's. */
  #warnOfFormer(found: readonly Webhook[], url: string): void {
    const { webhook, url: former } = this.#record ?? {};
    if (former === undefined || sameAddress(former, url)) return;
    const left = found.find(({ id, disabled }) => id === webhook && !disabled);
    if (!left || sameAddress(left.url, url)) return;
    const hint = `\`tagferry webhook delete ${left.id}\`, unless another gateway uses it.`;
    const fields = { event: 'webhook.left_behind', webhook: left.id, url: left.url, hint };
    this.#parts.log.warn(fields, 'the webhook of the former WEBHOOK_URL still delivers there');
  }

  async #create(application: number, signal?: AbortSignal): Promise<void> {
    const { url, eventTypes } = this.#options;
    const create = { url: url!, event_types: eventTypes };
    const properties = this.#filters ?? {};
    const isFiltered = Object.keys(properties).length > 0;
    const { id, secret } = isFiltered
      ? await this.#resource.create(application, { ...create, properties }, signal).catch((error) => {
          // Rather events without a filter than none; the next check asks for the filters, and says what the platform thinks of them.
          if (!(error instanceof RefusedError) || error.retryable) throw error;
          return this.#resource.create(application, create, signal);
        })
      : await this.#resource.create(application, create, signal);
    const record: RegistrationRecord = { webhook: id, url: url!, scope: randomUUID() };
    await this.#keep(secret === undefined ? { ...record, resetting: true } : { ...record, secret });
    this.#parts.log.info({ event: 'webhook.created', webhook: id, url }, 'the webhook was registered');
    if (secret === undefined) await this.#resetSecret(application, record, signal);
  }

  async #adopt(
    application: number,
    url: string,
    step: Extract<DriftStep, { kind: 'adopt' }>,
    signal?: AbortSignal,
  ): Promise<void> {
    const { id } = step.webhook;
    if (this.#record?.webhook !== id) {
      await this.#keep({ webhook: id, url, scope: randomUUID() });
    } else if (this.#record.url !== url) {
      await this.#keep({ ...this.#record, url });
    }
    if (step.resetSecret) await this.#resetSecret(application, this.#record!, signal);
    for (const change of await this.#mending.mend(application, id, step.changes, signal)) {
      if (change.properties) await this.#keep({ ...this.#record!, filters: change.properties });
    }
  }

  /** See the head of this file for what a crash at each step leaves. */
  async #resetSecret(application: number, record: RegistrationRecord, signal?: AbortSignal): Promise<void> {
    await this.#keep({ ...record, resetting: true });
    const secret = await this.#resource.resetSecret(application, record.webhook, signal);
    const { resetting: _, previous: __, secret: before, ...rest } = { ...record, resetting: true };
    await this.#keep({ ...rest, secret, ...(before === undefined ? {} : { previous: before }) });
    this.#endPreviousLater();
    this.#parts.log.info({ event: 'webhook.secret_reset', webhook: record.webhook }, 'the webhook has a new secret');
  }

  #endPreviousLater(): void {
    this.#cancelPrevious();
    this.#cancelPrevious = this.#parts.clock.after(PREVIOUS_VALID_MS, () => {
      void this.#inTurn(async () => {
        if (!this.#record) return;
        const { previous: _, ...rest } = this.#record;
        await this.#keep(rest);
      }).catch((error) =>
        this.#parts.log.error(
          { event: 'webhook.record_failed', error: messageOf(error) },
          'the old secret stays on disk',
        ),
      );
    });
  }

  async #keep(record: RegistrationRecord): Promise<void> {
    // In memory first: a secret that the platform has given must be accepted even while the disk refuses it.
    this.#record = record;
    await this.#parts.file.write(record);
  }

  async #findApplication(signal?: AbortSignal): Promise<number> {
    this.#application ??= await this.#resource.findApplication(this.#options.application, signal);
    return this.#application;
  }

  async #target(id: number | undefined): Promise<{ application: number; webhook: number; own: boolean }> {
    const application = await this.#findApplication();
    const own = (await this.list()).find((webhook) => webhook.own)?.id;
    const webhook = id ?? own;
    if (webhook === undefined) throw notRegistered();
    return { application, webhook, own: webhook === own };
  }

  #refuseByHand(done: string, hint: string): void {
    if (!this.#options.secret) return;
    throw new UsageError(`A webhook that was registered by hand (WEBHOOK_SECRET) is not ${done} from here`, hint);
  }

  #inTurn<Result>(work: () => Promise<Result>): Promise<Result> {
    const next = this.#turn.then(work, work);
    this.#turn = next.catch(() => {});
    return next;
  }
}

function notRegistered(): PlatformError {
  return new PlatformError('The platform has no webhook with the address of WEBHOOK_URL', {
    code: 'webhook.not_registered',
    hint: 'Register it on the platform with this address, or leave WEBHOOK_SECRET empty and let `tagferry webhook register` do it.',
  });
}
