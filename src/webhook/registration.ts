import { randomUUID } from 'node:crypto';
import { codeOf, messageOf, PlatformError, UsageError } from '../base/errors.ts';
import { retryBounded } from '../base/retry.ts';
import type { Webhook } from '../contract/webhooks.ts';
import type { ApiCalls } from '../platform/client.ts';
import { findClientApplication } from '../platform/resources/connect-subscription.ts';
import { Webhooks } from '../platform/resources/webhooks.ts';
import { isMissingCall } from '../platform/response-meanings.ts';
import { type WebhookContents, WebhookCreation } from './creation.ts';
import { DriftRepair, type DriftStep, findDrift, findLeftBehind, sameAddress } from './drift.ts';
import { type DisabledBy, Enablement, type Reenable } from './enablement.ts';
import type { Filters } from './filters.ts';
import { KnownWebhook, type KnownWebhookParts } from './known-webhook.ts';
import { PeriodicCheck } from './periodic-check.ts';
import type { Registered } from './registration-file.ts';

/**
 * Manages this gateway's webhook on the platform: creates it once, keeps it as configured, and obtains its secret.
 *
 * States: unknown (no record; the listener responds 503), registered (record with a secret), resetting (record whose
 * secret may be invalid). A reset is recorded before the request, and the new secret before its use. After a crash, the
 * next check resets the secret again. Both secrets are valid for an hour after a rotation. If a crash occurs before a
 * created webhook is recorded, the next startup finds it by its URL. With WEBHOOK_SECRET, webhooks are not created,
 * reset or deleted.
 */
export interface RegistrationOptions {
  /** WEBHOOK_URL. If undefined, no webhook is registered. */
  url: string | undefined;
  /** WEBHOOK_SECRET. */
  secret: string | undefined;
  eventTypes: readonly string[];
  /** Filters returned by `filtersFor`. Default: the current filters of the webhook. */
  properties?: Filters;
  /** CLIENT_APPLICATION. Default: the current client application. */
  application: string | undefined;
  /** WEBHOOK_REENABLE. */
  reenable: Reenable;
}

export interface RegistrationParts extends KnownWebhookParts {
  platform: ApiCalls;
}

/** A webhook in the output of `webhook ls`. */
export interface ListedWebhook extends Webhook {
  /** Whether the webhook belongs to this gateway. */
  own: boolean;
  /**
   * Whether this gateway registered the webhook for a URL that is no longer configured. `webhook prune` deletes such
   * webhooks.
   */
  left_behind: boolean;
}

/** Interval between checks. A check requires three requests. */
const CHECK_EVERY_MS = 15 * 60_000;
const RETRY = { baseMs: 1_000, capMs: 60_000 };
const REJECTED_RETRY_MS = 5 * 60_000;

export class WebhookRegistration {
  readonly #options: RegistrationOptions;
  readonly #parts: RegistrationParts;
  readonly #repair: DriftRepair;
  readonly #known: KnownWebhook;
  readonly #creation: WebhookCreation;
  readonly #enablement: Enablement;
  #application: number | undefined;
  /** Resolves when the latest change has completed, because changes run one at a time. */
  #lastChange: Promise<unknown> = Promise.resolve();
  readonly #checks: PeriodicCheck;
  #filters: Filters | undefined;
  /** Whether the webhook was deleted by a command. It is not created again until `register` or the next startup. */
  #isDeleted = false;
  #ready = false;
  readonly #onChecked: (() => void)[] = [];
  /** IDs of webhooks for a previous WEBHOOK_URL that have been logged. */
  readonly #loggedLeftBehind = new Set<number>();

  constructor(options: RegistrationOptions, parts: RegistrationParts) {
    this.#options = options;
    this.#parts = parts;
    this.#filters = options.properties;
    this.#repair = new DriftRepair(parts.log);
    this.#known = new KnownWebhook(parts);
    const { platform, log } = parts;
    this.#creation = new WebhookCreation(this.#known, log);
    this.#enablement = new Enablement({ policy: options.reenable, platform, known: this.#known, log });
    this.#checks = new PeriodicCheck({
      check: (signal) => this.#check(signal),
      everyMs: CHECK_EVERY_MS,
      retry: RETRY,
      rejectedMs: REJECTED_RETRY_MS,
      failed: { event: 'webhook.registration_failed', message: 'failed to register the webhook, retrying' },
      restored: { event: 'webhook.registration_restored', message: 'webhook registration restored' },
      clock: parts.clock,
      log,
    });
  }

  /** Returns the valid secrets. If none is known, the listener responds 503. */
  secrets(): readonly string[] {
    if (this.#options.secret) return [this.#options.secret];
    return this.#known.secrets();
  }

  /** Returns the webhook, or `undefined` until it has been found or created. */
  current(): Registered | undefined {
    const { record } = this.#known;
    if (!this.#ready || !record || this.#application === undefined) return undefined;
    return { application: this.#application, webhook: record.webhook, scope: record.scope };
  }

  /** What disabled the webhook; undefined while the webhook is enabled or has not been found yet. */
  get disabledBy(): DisabledBy | undefined {
    return this.#enablement.disabledBy;
  }

  /** Calls the listener after each successful check. */
  onChecked(listener: () => void): void {
    this.#onChecked.push(listener);
  }

  /** Reads the record, then registers in the background. */
  async start(signal: AbortSignal): Promise<void> {
    await this.load();
    if (this.#options.url || this.#known.made.length > 0) this.#checks.start(signal);
  }

  async stop(): Promise<void> {
    this.#known.stop();
    await this.#checks.stop();
  }

  /** Reads the record. Must be called before the listener starts. */
  load(): Promise<void> {
    return this.#known.load();
  }

  /** Checks the webhook soon, because the deliveries list returned 404 or the platform is reachable again. */
  checkSoon(): void {
    this.#checks.runSoon();
  }

  /** Called when the technical user is signed in. Repeats a check that failed because there was no session. */
  signedIn(): void {
    this.#checks.signedIn();
  }

  /** Applies the filters for reloaded rules soon. */
  setFilters(filters: Filters): void {
    if (JSON.stringify(filters) === JSON.stringify(this.#filters)) return;
    this.#filters = filters;
    this.checkSoon();
  }

  /** `webhook register`: creates or corrects the webhook. */
  register(): Promise<Registered> {
    this.#isDeleted = false;
    return this.#oneAtATime(() => retryBounded(() => this.#ensure(), { retries: 2 }));
  }

  /** Returns all webhooks of the client application. */
  async list(): Promise<ListedWebhook[]> {
    const { url } = this.#options;
    const { found } = await this.#findWebhooks();
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

  /** `webhook enable`: if `id` is omitted, enables this gateway's own webhook. */
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

  /** Requests a new secret from the platform. The previous secret remains valid for an hour. */
  rotateSecret(): Promise<void> {
    this.#rejectManual('rotated', 'Change the secret on the platform, then in WEBHOOK_SECRET.');
    return this.#oneAtATime(async () => {
      const { webhooks, webhook } = await this.#target(undefined);
      if (!this.#known.record) throw notRegistered();
      await this.#creation.resetSecret(webhooks, { ...this.#known.record, webhook }).catch((error) => {
        if (!this.#known.record?.resetting) throw error;
        // If the response was lost, the platform may have changed the secret. Deliveries are then rejected until the
        // secret is changed again.
        const fields = { event: 'webhook.reset_failed', code: codeOf(error), error: messageOf(error) };
        this.#parts.log.warn(fields, 'failed to confirm the secret change, retrying');
        this.checkSoon();
        throw error;
      });
    });
  }

  /** Whether a secret is known and matches the secret on the platform. */
  get isSecretKnown(): boolean {
    return this.secrets().length > 0 && this.#known.record?.resetting !== true;
  }

  /**
   * `webhook delete`: if `id` is omitted, deletes this gateway's own webhook, which is not created again until
   * `register` or the next startup.
   */
  delete(id?: number): Promise<void> {
    if (id === undefined) this.#rejectManual('deleted', 'Delete the webhook on the platform.');
    return this.#oneAtATime(async () => {
      const { webhooks, webhook, own } = await this.#target(id);
      if (own) this.#rejectManual('deleted', 'Delete the webhook on the platform.');
      await webhooks.delete(webhook);
      // If the deletion fails, checks continue to repair and enable the webhook.
      if (own) {
        this.#isDeleted = true;
        this.#ready = false;
      }
      await this.#known.forget(webhook);
    });
  }

  /**
   * `webhook prune`: deletes the given webhooks if their URL is no longer configured. Returns the IDs of deleted
   * webhooks.
   */
  prune(ids: readonly number[]): Promise<number[]> {
    return this.#oneAtATime(async () => {
      const { webhooks, found } = await this.#findWebhooks();
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
    for (const listener of this.#onChecked) listener();
  }

  async #ensure(signal?: AbortSignal): Promise<Registered> {
    const { url, secret, eventTypes } = this.#options;
    const properties = this.#filters;
    if (!url) throw new UsageError('cannot register a webhook: WEBHOOK_URL is empty');
    const { webhooks, found } = await this.#findWebhooks(signal);
    const wanted = { url, eventTypes, ...(properties ? { properties } : {}), byHand: Boolean(secret) };
    const contents = { url, eventTypes, filters: properties ?? {} };
    const step = findDrift(found, this.#known.record, wanted);
    if (step.kind === 'missing') throw notRegistered();
    this.#logLeftBehind(found);
    if (step.kind === 'create') {
      await this.#enablement.lost();
      await this.#creation.create(webhooks, contents, signal);
    } else await this.#adopt(webhooks, contents, step, signal);
    this.#ready = true;
    // Enable the webhook last, because an enabled webhook delivers events and therefore requires event types and a
    // known secret.
    const { application, webhook: id } = this.current()!;
    const isFound = step.kind === 'adopt' && step.webhook.id === id;
    if (!isFound) await this.#enablement.lost();
    const disabled = isFound && step.webhook.disabled;
    await this.#enablement.settle(webhooks, application, { id, disabled }, signal);
    return this.current()!;
  }

  /**
   * Logs each webhook once. Does not delete it, because it may belong to another gateway if the state folder was
   * copied.
   */
  #logLeftBehind(found: readonly Webhook[]): void {
    for (const { id, url, disabled } of findLeftBehind(found, this.#known.made, this.#options.url)) {
      if (disabled || this.#loggedLeftBehind.has(id)) continue;
      this.#loggedLeftBehind.add(id);
      const hint = 'Run `tagferry webhook prune`, unless another gateway is using this webhook.';
      const fields = { event: 'webhook.left_behind', webhook: id, url, hint };
      this.#parts.log.warn(fields, 'webhook for a previous WEBHOOK_URL still exists');
    }
  }

  /** Looks for webhooks that were registered before WEBHOOK_URL was removed. */
  async #lookForLeftBehind(signal: AbortSignal): Promise<void> {
    const { found } = await this.#findWebhooks(signal);
    this.#logLeftBehind(found);
  }

  /**
   * Returns the webhooks of the client application. The call that lists webhooks is not documented (platform 4.5). If
   * the platform does not support it, returns the webhooks that this gateway created and recorded, with their settings.
   */
  async #findWebhooks(signal?: AbortSignal): Promise<{ webhooks: Webhooks; found: Webhook[] }> {
    const webhooks = await this.#webhooks(signal);
    try {
      return { webhooks, found: await Array.fromAsync(webhooks.list(signal)) };
    } catch (error) {
      if (!isMissingCall(error)) throw error;
      const before = this.#application;
      this.#application = undefined;
      const again = await this.#webhooks(signal);
      // If the application has changed, the next check reads its list.
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
    // If the webhook was replaced, its replacement already has the configured settings.
    if (this.#known.record?.webhook !== id) return;
    for (const { event_types, properties } of await this.#repair.repair(webhooks, id, step.changes, signal)) {
      const record = this.#known.record!;
      const eventTypes = event_types ?? record.eventTypes;
      await this.#known.keep({ ...record, eventTypes, filters: properties ?? record.filters });
    }
  }

  async #webhooks(signal?: AbortSignal): Promise<Webhooks> {
    const { platform } = this.#parts;
    this.#application ??= (await findClientApplication(platform, this.#options.application, signal)).id;
    return new Webhooks(platform, this.#application);
  }

  async #target(id: number | undefined): Promise<{ webhooks: Webhooks; webhook: number; own: boolean }> {
    const own = (await this.list()).find((webhook) => webhook.own)?.id;
    const webhook = id ?? own;
    if (webhook === undefined) throw notRegistered();
    return { webhooks: await this.#webhooks(), webhook, own: webhook === own };
  }

  #rejectManual(done: string, hint: string): void {
    if (!this.#options.secret) return;
    throw new UsageError(`a webhook configured with WEBHOOK_SECRET cannot be ${done} by the agent`, hint);
  }

  #oneAtATime<Result>(work: () => Promise<Result>): Promise<Result> {
    const next = this.#lastChange.then(work, work);
    this.#lastChange = next.catch(() => {});
    return next;
  }
}

function notRegistered(): PlatformError {
  return new PlatformError('no webhook for WEBHOOK_URL exists on the platform', {
    code: 'webhook.not_registered',
    hint: 'Register the webhook on the platform, or clear WEBHOOK_SECRET and run `tagferry webhook register`.',
  });
}
