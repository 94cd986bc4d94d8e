import { randomUUID } from 'node:crypto';
import { codeOf, messageOf, PlatformError, UsageError } from '../base/errors.ts';
import { retryBounded } from '../base/retry.ts';
import type { Webhook } from '../contract/webhooks.ts';
import { isMissingCall } from '../platform/call-refusal.ts';
import type { ApiCalls } from '../platform/client.ts';
import { allEntries } from '../platform/pages.ts';
import { ClientApplications } from '../platform/resources/client-applications.ts';
import { Webhooks } from '../platform/resources/webhooks.ts';
import { type WebhookContents, WebhookCreation } from './creation.ts';
import { type DriftStep, findDrift, sameAddress } from './drift.ts';
import { DriftRepair } from './drift-repair.ts';
import { type DisabledBy, Enablement, type Reenable } from './enablement.ts';
import type { Filters } from './filters.ts';
import { KnownWebhook, type KnownWebhookParts } from './known-webhook.ts';
import { findLeftBehind, LeftBehindLog } from './left-behind.ts';
import { RegistrationChecks } from './registration-checks.ts';
import type { Registered } from './registration-file.ts';

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
  /** WEBHOOK_REENABLE. */
  reenable: Reenable;
}

export interface RegistrationParts extends KnownWebhookParts {
  platform: ApiCalls;
  /** The webhook is as it should be; called after every check that said so. */
  registered?: () => void;
}

/** A webhook as `webhook ls` shows it. */
export interface ListedWebhook extends Webhook {
  /** It is this gateway's. */
  own: boolean;
  /** This gateway registered it, and its address is no longer configured: `webhook prune` takes it away. */
  left_behind: boolean;
}

export class WebhookRegistration {
  readonly #options: RegistrationOptions;
  readonly #parts: RegistrationParts;
  readonly #repair: DriftRepair;
  readonly #known: KnownWebhook;
  readonly #creation: WebhookCreation;
  readonly #enablement: Enablement;
  #application: number | undefined;
  /** Calls that change the webhook, one after the other. */
  #lastChange: Promise<unknown> = Promise.resolve();
  readonly #checks: RegistrationChecks;
  #filters: Filters | undefined;
  /** A person deleted it by a command: not created again until `register` or the next start. */
  #isDeleted = false;
  #ready = false;
  readonly #leftBehind: LeftBehindLog;

  constructor(options: RegistrationOptions, parts: RegistrationParts) {
    this.#options = options;
    this.#parts = parts;
    this.#filters = options.properties;
    this.#repair = new DriftRepair(parts.log);
    this.#known = new KnownWebhook(parts);
    const { platform, log } = parts;
    this.#creation = new WebhookCreation(this.#known, log);
    this.#enablement = new Enablement({ policy: options.reenable, platform, known: this.#known, log });
    this.#leftBehind = new LeftBehindLog(parts.log);
    this.#checks = new RegistrationChecks({ check: (signal) => this.#check(signal), clock: parts.clock, log });
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

  /** Who disabled the webhook; `undefined` while it is enabled, or not found yet. */
  get disabledBy(): DisabledBy | undefined {
    return this.#enablement.disabledBy;
  }

  /** Reads the record, so that the listener can start, then registers in the background for as long as that takes. */
  async start(signal: AbortSignal): Promise<void> {
    await this.load();
    if (this.#options.url || this.#known.made.length > 0) this.#checks.start(signal);
  }

  async stop(): Promise<void> {
    this.#known.stop();
    await this.#checks.stop();
  }

  /** Reads the record: before the listener opens. */
  load(): Promise<void> {
    return this.#known.load();
  }

  /** Checks the webhook soon: the deliveries list responded with 404, or the platform is reachable again. */
  checkSoon(): void {
    this.#checks.checkSoon();
  }

  /** The technical user is signed in: a check that failed for lack of a session is repeated now. */
  signedIn(): void {
    this.#checks.signedIn();
  }

  /** Filters of rules as they stand after a reload: the webhook gets them at once, or as soon as the platform can be reached. */
  setFilters(filters: Filters): void {
    if (JSON.stringify(filters) === JSON.stringify(this.#filters)) return;
    this.#filters = filters;
    this.checkSoon();
  }

  /** Makes the webhook as it should be, once. What the loop does, and `webhook register`. */
  register(): Promise<Registered> {
    this.#isDeleted = false;
    return this.#oneAtATime(() => retryBounded(() => this.#ensure(), { retries: 2 }));
  }

  /** All webhooks of the client application. */
  async list(): Promise<ListedWebhook[]> {
    const { url } = this.#options;
    const { found } = await this.#look();
    const leftBehind = findLeftBehind(found, this.#known.made, url);
    const candidates = found.filter((webhook) => !leftBehind.includes(webhook));
    const own =
      candidates.find(({ id }) => id === this.#known.record?.webhook) ??
      candidates.find((webhook) => url !== undefined && sameAddress(webhook.url, url));
    return found.map((webhook) => ({
      ...webhook,
      own: webhook === own,
      left_behind: leftBehind.includes(webhook),
    }));
  }

  /** `webhook enable`. Without an id this gateway's own webhook. */
  enable(id?: number): Promise<void> {
    return this.#oneAtATime(async () => {
      const { webhooks, webhook, own } = await this.#target(id);
      await (own ? this.#enablement.enable(webhooks, webhook) : webhooks.setDisabled(webhook, false));
    });
  }

  /** `webhook disable`: this gateway's own webhook stays disabled until `enable`, across restarts. */
  disable(id?: number): Promise<void> {
    return this.#oneAtATime(async () => {
      const { webhooks, webhook, own } = await this.#target(id);
      await (own ? this.#enablement.disable(webhooks, webhook) : webhooks.setDisabled(webhook, true));
    });
  }

  /** A new secret from the platform; the old one stays valid for an hour. */
  rotateSecret(): Promise<void> {
    this.#refuseByHand('rotated', 'change it on the platform, then in WEBHOOK_SECRET');
    return this.#oneAtATime(async () => {
      const { webhooks, webhook } = await this.#target(undefined);
      if (!this.#known.record) throw notRegistered();
      await this.#creation.resetSecret(webhooks, { ...this.#known.record, webhook }).catch((error) => {
        if (!this.#known.record?.resetting) throw error;
        // The platform may have changed it, and the response is lost: deliveries are rejected until it is changed again.
        const fields = { event: 'webhook.reset_failed', code: codeOf(error), error: messageOf(error) };
        this.#parts.log.warn(fields, 'failed to confirm the secret change, repeating it');
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
        this.#isDeleted = true;
      }
      await webhooks.delete(webhook);
      if (own) this.#ready = false;
      await this.#known.forget(webhook);
    });
  }

  /** `webhook prune`: deletes those of these that are left behind still. Gives what was deleted. */
  prune(ids: readonly number[]): Promise<number[]> {
    return this.#oneAtATime(async () => {
      const { webhooks, found } = await this.#look();
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

  async #check(signal: AbortSignal): Promise<void> {
    if (this.#isDeleted) return;
    if (!this.#options.url) return this.#lookForLeftBehind(signal);
    await this.#oneAtATime(() => this.#ensure(signal));
    this.#parts.registered?.();
  }

  async #ensure(signal?: AbortSignal): Promise<Registered> {
    const { url, secret, eventTypes } = this.#options;
    const properties = this.#filters;
    if (!url) throw new UsageError('WEBHOOK_URL is empty: there is no address to register');
    const { webhooks, found } = await this.#look(signal);
    const wanted = { url, eventTypes, ...(properties ? { properties } : {}), byHand: Boolean(secret) };
    const contents = { url, eventTypes, filters: properties ?? {} };
    const step = findDrift(found, this.#known.record, wanted);
    if (step.kind === 'missing') throw notRegistered();
    this.#leftBehind.say(found, this.#known.made, url);
    if (step.kind === 'create') {
      await this.#enablement.lost();
      await this.#creation.create(webhooks, contents, signal);
    } else await this.#adopt(webhooks, contents, step, signal);
    this.#ready = true;
    // Last: an enabled webhook delivers, and must have its types and a known secret by then.
    const { application, webhook: id } = this.current()!;
    const isFound = step.kind === 'adopt' && step.webhook.id === id;
    if (!isFound) await this.#enablement.lost();
    const disabled = isFound && step.webhook.disabled;
    await this.#enablement.settle(webhooks, application, { id, disabled }, signal);
    return this.current()!;
  }

  /** WEBHOOK_URL is empty, but was not always. */
  async #lookForLeftBehind(signal: AbortSignal): Promise<void> {
    const { found } = await this.#look(signal);
    this.#leftBehind.say(found, this.#known.made, undefined);
  }

  /**
   * The webhooks of the client application. The document shows no call that lists them (4.5): where the platform has none, those that
   * this gateway created and remembers, with what it set.
   */
  async #look(signal?: AbortSignal): Promise<{ webhooks: Webhooks; found: Webhook[] }> {
    const webhooks = await this.#webhooks(signal);
    try {
      return { webhooks, found: await allEntries(webhooks.list(signal)) };
    } catch (error) {
      if (!isMissingCall(error)) throw error;
      const before = this.#application;
      this.#application = undefined;
      const again = await this.#webhooks(signal);
      // Another application by now: its own list decides, at the next check.
      if (this.#application !== before) throw error;
      return { webhooks: again, found: await this.#remembered(again, signal) };
    }
  }

  async #remembered(webhooks: Webhooks, signal?: AbortSignal): Promise<Webhook[]> {
    const { decision, made, record } = this.#known;
    const found: Webhook[] = [];
    for (const { webhook: id, url } of made) {
      if (!(await webhooks.exists(id, signal))) continue;
      const isOwn = record?.webhook === id;
      const { eventTypes = [], filters } = (isOwn ? record : undefined) ?? {};
      const disabled = isOwn && decision === 'disabled';
      found.push({ id, url, event_types: eventTypes, ...(filters ? { properties: filters } : {}), disabled });
    }
    return found;
  }

  async #adopt(
    webhooks: Webhooks,
    contents: WebhookContents,
    step: Extract<DriftStep, { kind: 'adopt' }>,
    signal?: AbortSignal,
  ): Promise<void> {
    const { id } = step.webhook;
    const { url } = contents;
    const { record, made } = this.#known;
    const isOwnCreation = made.some((one) => one.webhook === id);
    const adopted = record?.webhook === id ? { ...record, url } : { webhook: id, url, scope: randomUUID() };
    if (adopted.scope !== record?.scope || adopted.url !== record.url) await this.#known.adopt(adopted);
    if (step.resetSecret) await this.#creation.obtainSecret(webhooks, contents, isOwnCreation, signal);
    // Replaced: the new one is as configured.
    if (this.#known.record?.webhook !== id) return;
    for (const { event_types: eventTypes, properties: filters } of await this.#repair.repair(
      webhooks,
      id,
      step.changes,
      signal,
    )) {
      const accepted = { ...(eventTypes ? { eventTypes } : {}), ...(filters ? { filters } : {}) };
      await this.#known.keep({ ...this.#known.record!, ...accepted });
    }
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

function notRegistered(): PlatformError {
  return new PlatformError('the platform has no webhook with the address of WEBHOOK_URL', {
    code: 'webhook.not_registered',
    hint: 'Register it on the platform with this address, or leave WEBHOOK_SECRET empty and let `tagferry webhook register` do it.',
  });
}
