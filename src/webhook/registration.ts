import { randomUUID } from 'node:crypto';
import type { Clock } from '../base/clock.ts';
import { codeOf, messageOf, PlatformError, TagferryError, UsageError } from '../base/errors.ts';
import type { Logger } from '../base/logger.ts';
import { fullJitterMs } from '../base/retry.ts';
import type { Webhook } from '../contract/webhooks.ts';
import { CallRefusal } from '../platform/call-refusal.ts';
import type { ApiCalls } from '../platform/client.ts';
import { allEntries } from '../platform/pages.ts';
import { ClientApplications } from '../platform/resources/client-applications.ts';
import { type NewWebhook, Webhooks } from '../platform/resources/webhooks.ts';
import { type DriftStep, findDrift, sameAddress } from './drift.ts';
import { DriftRepair } from './drift-repair.ts';
import type { Filters } from './filters.ts';
import { KnownWebhook } from './known-webhook.ts';
import { findLeftBehind, LeftBehindLog } from './left-behind.ts';
import type { RegistrationFile, RegistrationRecord } from './registration-file.ts';

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
  platform: ApiCalls;
  file: RegistrationFile;
  clock: Clock;
  log: Logger;
  /** The webhook is as it should be; called after every check that said so. */
  registered?: () => void;
}

export interface Registered {
  application: number;
  webhook: number;
  scope: string;
}

/** A webhook as `webhook ls` shows it. */
export interface ListedWebhook extends Webhook {
  /** It is this gateway's. */
  own: boolean;
  /** This gateway registered it, and its address is no longer configured: `webhook prune` takes it away. */
  left_behind: boolean;
}

/** Three requests; disabling takes the platform two weeks, a person a second. */
const CHECK_EVERY_MS = 15 * 60_000;
const RETRY = { baseMs: 1_000, capMs: 60_000 };
/** What the platform refuses with 4xx a person has to mend. */
const REFUSED_RETRY_MS = 5 * 60_000;

export class WebhookRegistration {
  readonly #options: RegistrationOptions;
  readonly #parts: RegistrationParts;
  readonly #repair: DriftRepair;
  readonly #known: KnownWebhook;
  #application: number | undefined;
  /** Calls that change the webhook, one after the other. */
  #lastChange: Promise<unknown> = Promise.resolve();
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
  readonly #leftBehind: LeftBehindLog;

  constructor(options: RegistrationOptions, parts: RegistrationParts) {
    this.#options = options;
    this.#parts = parts;
    this.#filters = options.properties;
    this.#repair = new DriftRepair(parts.log);
    this.#known = new KnownWebhook(parts);
    this.#leftBehind = new LeftBehindLog(parts.log);
  }

  /** Secrets that a signature may be made with, now. None: the listener answers 503. */
  secrets(): readonly string[] {
    if (this.#options.secret) return [this.#options.secret];
    return this.#known.secrets();
  }

  /** `undefined` until the webhook was found or made. */
  current(): Registered | undefined {
    const { record } = this.#known;
    if (!this.#ready || !record || this.#application === undefined) return undefined;
    return { application: this.#application, webhook: record.webhook, scope: record.scope };
  }

  /** Reads what is known, so that the listener can begin, then registers in the background for as long as it takes. */
  async start(signal: AbortSignal): Promise<void> {
    signal.addEventListener('abort', () => this.#stopping.abort(), { once: true });
    await this.load();
    if (this.#loop || (!this.#options.url && this.#known.made.length === 0)) return;
    this.#loop = this.#run(this.#stopping.signal);
  }

  async stop(): Promise<void> {
    this.#stopping.abort();
    this.#known.stop();
    await this.#loop;
  }

  /** Reads what is known: before the listener opens. */
  load(): Promise<void> {
    return this.#known.load();
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
    return this.#oneAtATime(() => this.#ensure());
  }

  /** All webhooks of the client application. */
  async list(): Promise<ListedWebhook[]> {
    const { url } = this.#options;
    const webhooks = await allEntries((await this.#webhooks()).list());
    const leftBehind = findLeftBehind(webhooks, this.#known.made, url);
    return webhooks.map((webhook) => ({
      ...webhook,
      own:
        !leftBehind.includes(webhook) &&
        (webhook.id === this.#known.record?.webhook || (url !== undefined && sameAddress(webhook.url, url))),
      left_behind: leftBehind.includes(webhook),
    }));
  }

  /** `webhook enable`. Without an id this gateway's own. */
  enable(id?: number): Promise<void> {
    this.#leftAlone = false;
    return this.#oneAtATime(async () => {
      const { webhooks, webhook } = await this.#target(id);
      await webhooks.setDisabled(webhook, false);
    });
  }

  /** `webhook disable`: stays so until `enable`, `register` or the next start. */
  disable(id?: number): Promise<void> {
    return this.#oneAtATime(async () => {
      const { webhooks, webhook, own } = await this.#target(id);
      if (own) this.#leftAlone = true;
      await webhooks.setDisabled(webhook, true);
    });
  }

  /** A new secret from the platform; the old one stays valid for an hour. */
  rotateSecret(): Promise<void> {
    this.#refuseByHand('rotated', 'change it on the platform, then in WEBHOOK_SECRET');
    return this.#oneAtATime(async () => {
      const { webhooks, webhook } = await this.#target(undefined);
      if (!this.#known.record) throw notRegistered();
      await this.#resetSecret(webhooks, { ...this.#known.record, webhook }).catch((error) => {
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
    return this.secrets().length > 0 && this.#known.record?.resetting !== true;
  }

  /** `webhook delete`: this gateway's own unless an id is given; not made again until `register` or the next start. */
  delete(id?: number): Promise<void> {
    if (id === undefined) this.#refuseByHand('deleted', 'delete it where it was registered');
    return this.#oneAtATime(async () => {
      const { webhooks, webhook, own } = await this.#target(id);
      if (own) {
        this.#refuseByHand('deleted', 'delete it where it was registered');
        this.#leftAlone = true;
      }
      await webhooks.delete(webhook);
      if (own) this.#ready = false;
      await this.#known.forget(webhook);
    });
  }

  /** `webhook prune`: deletes those of these that are left behind still. Gives what was deleted. */
  prune(ids: readonly number[]): Promise<number[]> {
    return this.#oneAtATime(async () => {
      const webhooks = await this.#webhooks();
      const found = await allEntries(webhooks.list());
      const deleted: number[] = [];
      for (const { id } of findLeftBehind(found, this.#known.made, this.#options.url)) {
        if (!ids.includes(id)) continue;
        await webhooks.delete(id);
        await this.#known.forget(id);
        deleted.push(id);
      }
      return deleted;
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
          if (this.#options.url) {
            await this.#oneAtATime(() => this.#ensure(signal));
            this.#parts.registered?.();
          } else await this.#lookForLeftBehind(signal);
        }
        if (said)
          log.info({ event: 'webhook.registration_restored', failures }, 'the webhook is as it should be again');
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
    const webhooks = await this.#webhooks(signal);
    const found = await allEntries(webhooks.list(signal)).catch((error) => {
      // The application may be another by now: find it again the next time.
      if (error instanceof CallRefusal && error.status === 404) this.#application = undefined;
      throw error;
    });
    const wanted = { url, eventTypes, ...(properties ? { properties } : {}), byHand: Boolean(secret) };
    const step = findDrift(found, this.#known.record, wanted);
    if (step.kind === 'missing') throw notRegistered();
    this.#leftBehind.say(found, this.#known.made, url);
    if (step.kind === 'create') await this.#create(webhooks, signal);
    else await this.#adopt(webhooks, url, step, signal);
    this.#ready = true;
    return this.current()!;
  }

  /** WEBHOOK_URL is empty, but was not always. */
  async #lookForLeftBehind(signal: AbortSignal): Promise<void> {
    const webhooks = await this.#webhooks(signal);
    this.#leftBehind.say(await allEntries(webhooks.list(signal)), this.#known.made, undefined);
  }

  async #create(webhooks: Webhooks, signal?: AbortSignal): Promise<void> {
    const { url } = this.#options;
    await this.#known.beginMaking(url!);
    const { id, secret } = await this.#askFor(webhooks, signal).catch(async (error) => {
      if (isRefused(error)) await this.#known.endMaking();
      throw error;
    });
    const record: RegistrationRecord = { webhook: id, url: url!, scope: randomUUID() };
    await this.#known.keepMade(secret === undefined ? { ...record, resetting: true } : { ...record, secret });
    this.#parts.log.info({ event: 'webhook.created', webhook: id, url }, 'the webhook was registered');
    if (secret === undefined) await this.#resetSecret(webhooks, record, signal);
  }

  async #askFor(webhooks: Webhooks, signal?: AbortSignal): Promise<NewWebhook> {
    const { url, eventTypes } = this.#options;
    const create = { url: url!, event_types: eventTypes };
    const properties = this.#filters ?? {};
    if (Object.keys(properties).length === 0) return webhooks.create(create, signal);
    return webhooks.create({ ...create, properties }, signal).catch((error) => {
      // Rather events without a filter than none; the next check asks for the filters, and says what the platform thinks of them.
      if (!isRefused(error)) throw error;
      return webhooks.create(create, signal);
    });
  }

  async #adopt(
    webhooks: Webhooks,
    url: string,
    step: Extract<DriftStep, { kind: 'adopt' }>,
    signal?: AbortSignal,
  ): Promise<void> {
    const { id } = step.webhook;
    const { record } = this.#known;
    const adopted = record?.webhook === id ? { ...record, url } : { webhook: id, url, scope: randomUUID() };
    if (adopted.scope !== record?.scope || adopted.url !== record.url) await this.#known.adopt(adopted);
    if (step.resetSecret) await this.#resetSecret(webhooks, this.#known.record!, signal);
    for (const change of await this.#repair.repair(webhooks, id, step.changes, signal)) {
      if (change.properties) await this.#known.keep({ ...this.#known.record!, filters: change.properties });
    }
  }

  /** See the head of this file for what a crash at each step leaves. */
  async #resetSecret(webhooks: Webhooks, record: RegistrationRecord, signal?: AbortSignal): Promise<void> {
    await this.#known.keep({ ...record, resetting: true });
    await this.#known.keepSecret(await webhooks.resetSecret(record.webhook, signal));
    this.#parts.log.info({ event: 'webhook.secret_reset', webhook: record.webhook }, 'the webhook has a new secret');
  }

  async #webhooks(signal?: AbortSignal): Promise<Webhooks> {
    const { platform } = this.#parts;
    this.#application ??= (await new ClientApplications(platform).find(this.#options.application, signal)).id;
    return new Webhooks(platform, this.#application);
  }

  async #target(id: number | undefined): Promise<{ webhooks: Webhooks; webhook: number; own: boolean }> {
    const own = (await this.list()).find((webhook) => webhook.own)?.id;
    const webhook = id ?? own;
    if (webhook === undefined) throw notRegistered();
    return { webhooks: await this.#webhooks(), webhook, own: webhook === own };
  }

  #refuseByHand(done: string, hint: string): void {
    if (!this.#options.secret) return;
    throw new UsageError(`A webhook that was registered by hand (WEBHOOK_SECRET) is not ${done} from here`, hint);
  }

  #oneAtATime<Result>(work: () => Promise<Result>): Promise<Result> {
    const next = this.#lastChange.then(work, work);
    this.#lastChange = next.catch(() => {});
    return next;
  }
}

/** The platform has answered, and will not answer otherwise. */
function isRefused(error: unknown): boolean {
  return error instanceof CallRefusal && !error.retryable;
}

function notRegistered(): PlatformError {
  return new PlatformError('the platform has no webhook with the address of WEBHOOK_URL', {
    code: 'webhook.not_registered',
    hint: 'Register it on the platform with this address, or leave WEBHOOK_SECRET empty and let `tagferry webhook register` do it.',
  });
}
