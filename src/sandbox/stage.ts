import { randomBytes } from 'node:crypto';
import { type Clock, systemClock } from '../base/clock.ts';
import { isLoopbackHost } from '../base/listen.ts';
import { type Logger, silentLogger } from '../base/logger.ts';
import type { EventType } from '../contract/events.ts';
import { PERMISSION_TYPES, type PermissionType } from '../contract/permissions.ts';
import { Announcer } from './events/announcer.ts';
import { SiteChanges } from './events/site-changes.ts';
import { Faults } from './faults.ts';
import { refusal } from './http/refusal.ts';
import { RequestLog } from './http/request-log.ts';
import { Usage } from './http/usage.ts';
import { CodeRegistry } from './identity/code-registry.ts';
import type { PermitableRef } from './permissions/inheritance.ts';
import { PermissionRegistry } from './permissions/permission-registry.ts';
import { Visibility } from './permissions/visibility.ts';
import { SandboxClock } from './sandbox-clock.ts';
import type { Outage, SandboxOptions } from './sandbox-options.ts';
import { defaultSeed } from './seed/default-seed.ts';
import { siteOf } from './seed/seed.ts';
import type { LabelRegistry, Notice, User } from './site/records.ts';
import { SiteModel } from './site/site-model.ts';
import type { Strictness } from './strictness.ts';
import { TokenStore } from './tokens/token-store.ts';
import { type NewThreshold, ThresholdWatch } from './values/threshold-watch.ts';
import { ValueArrival } from './values/value-arrival.ts';
import { ValueLedger } from './values/value-ledger.ts';
import type { PostedSeries } from './values/values-body.ts';
import { DeliveryEngine, type DeliveryReport } from './webhooks/delivery-engine.ts';
import { httpSender } from './webhooks/sender.ts';
import { WebhookFaults } from './webhooks/webhook-faults.ts';
import { type Delivery, type WebhookRecord, WebhookRegistry } from './webhooks/webhook-registry.ts';

interface PermissionOptions {
  /** E-mail address or ID. Default: the technical user of the first client application. */
  user?: number | string;
  /** Default: all four permission types. */
  types?: readonly PermissionType[];
}

/**
 * State of the platform, without its HTTP interface: each component owns its part. Endpoints and event causes receive
 * the stage; `Sandbox` adds the routes and sockets.
 */
export abstract class Stage {
  readonly clock: SandboxClock;
  readonly site: SiteModel;
  readonly permissions: PermissionRegistry;
  readonly tokens: TokenStore;
  readonly codes: CodeRegistry;
  readonly values: ValueLedger;
  readonly faults = new Faults();
  readonly webhookFaults: WebhookFaults;
  readonly requests = new RequestLog();
  readonly usage: Usage;
  readonly webhookRegistry: WebhookRegistry;
  readonly announcer: Announcer;
  readonly visibility: Visibility;
  /** Changes the site and sends the corresponding events (platform 6.3). */
  readonly changes: SiteChanges;
  readonly labels: LabelRegistry = new Map();
  /** Messages to contacts, for example about disabled webhooks (platform 3.2). */
  readonly notices: Notice[] = [];
  readonly engine: DeliveryEngine;
  readonly thresholds: ThresholdWatch;
  readonly arrival: ValueArrival;
  readonly options: SandboxOptions;
  /** Real clock, for latency and durations. */
  readonly realClock: Clock;
  readonly log: Logger;
  readonly strict: Strictness;
  /** Whether the sandbox listens only on loopback. */
  readonly isLoopback: boolean;
  readonly stopping = new AbortController();
  readonly #deliveryListeners = new Set<(report: DeliveryReport) => void>();

  constructor(options: SandboxOptions) {
    this.options = options;
    this.realClock = options.clock ?? systemClock;
    this.log = options.log ?? silentLogger();
    this.strict = new Set(options.strict);
    this.isLoopback = isLoopbackHost(options.host ?? '127.0.0.1');
    this.clock = new SandboxClock(this.realClock, options.speed ?? 1, options.nowMs);
    const { site, owners } = siteOf(options.seed ?? defaultSeed);
    this.site = new SiteModel(site);
    this.permissions = new PermissionRegistry(this.site, owners);
    const exists = (user: number, application: number) =>
      this.site.get('users', user) !== undefined && this.site.get('client_applications', application) !== undefined;
    this.tokens = new TokenStore(this.clock, options, () => this.makeToken(), exists);
    this.codes = new CodeRegistry(this.clock);
    this.values = new ValueLedger(options.values, options.maxValues);
    this.usage = new Usage(this.clock, this.site, options.limits);
    this.webhookRegistry = new WebhookRegistry(this.clock, options.maxDeliveries);
    const send = options.sendWebhook ?? httpSender(options.webhookTimeoutMs ?? 10_000, options.webhookCa);
    this.webhookFaults = new WebhookFaults(send, this.realClock, (text) => this.report(text), this.stopping.signal);
    this.engine = new DeliveryEngine({
      clock: this.clock,
      registry: this.webhookRegistry,
      send: (post, delivery, webhook) => this.webhookFaults.send(post, delivery, webhook),
      spend: (application, bytes) => this.site.isSubscribed(application) && this.usage.spend(application, bytes),
      report: (report) => this.#reportDelivery(report),
      disabled: (webhook) => this.#noteDisabled(webhook),
    });
    this.announcer = new Announcer(this.site, this.clock, this.webhookRegistry, this.engine);
    this.visibility = new Visibility(this.site, this.permissions, ({ eventType, user, content }) => {
      this.announcer.announce({ type: eventType, audience: (other) => other === user, content: () => content });
    });
    this.thresholds = new ThresholdWatch(this.site);
    this.arrival = new ValueArrival(this);
    this.changes = new SiteChanges(this);
  }

  /** The {base_url}, used as PLATFORM_URL: `http://127.0.0.1:port`. */
  abstract get url(): string;
  /** The {web_url}, used as IDENTITY_URL. Equals {base_url} unless a separate port is configured. */
  abstract get identityUrl(): string;
  /** Base URL of `/sandbox/…`. Equals {base_url} unless a separate port is configured. */
  abstract get adminUrl(): string;
  abstract get outage(): Outage | undefined;
  abstract goOffline(how?: Outage): Promise<void>;
  abstract goOnline(): Promise<void>;

  /** Returns a random token, secret or password. */
  makeToken(): string {
    return randomBytes(32).toString('base64url');
  }

  /** Grants permissions on an object and removes blocks. Newly visible objects are announced. */
  grantPermission(on: PermitableRef, { user: who, types = PERMISSION_TYPES }: PermissionOptions = {}): void {
    const user = this.user(who);
    this.visibility.during(() => {
      this.permissions.unblock(user.id, on, types);
      this.permissions.grant({ type: 'User', id: user.id }, on, types);
    });
    this.report(`${user.name ?? user.email} granted ${types.join(', ')} on ${on.type} ${on.id}`);
  }

  /**
   * Revokes permissions on an object, including inherited permissions, by adding a block that `grantPermission`
   * removes. With `direct`, removes only the direct grant (platform 2.2).
   */
  revokePermission(on: PermitableRef, options: PermissionOptions & { direct?: boolean } = {}): void {
    const user = this.user(options.user);
    const { types = PERMISSION_TYPES, direct = false } = options;
    this.visibility.during(() => {
      const record = this.permissions.find({ type: 'User', id: user.id }, on);
      const left = record?.types.filter((type) => !types.includes(type));
      if (record && left) this.permissions.setTypes(record, left);
      if (!direct) this.permissions.block(user.id, on, types);
    });
    this.report(`${user.name ?? user.email} lost ${types.join(', ')} on ${on.type} ${on.id}`);
  }

  /**
   * Sets a threshold for an instrumentation, system or recipe, and returns its ID. Replaces a threshold with the same
   * ID.
   */
  setThreshold(wanted: NewThreshold): number {
    return this.thresholds.set(wanted);
  }

  removeThreshold(id: number): boolean {
    return this.thresholds.remove(id);
  }

  /** Accepts valid values as if they had been posted. */
  acceptValues(asset: number, posted: readonly PostedSeries[]): void {
    this.arrival.accept(asset, posted);
  }

  /** Returns the webhooks with their secrets, for tests that sign deliveries. */
  webhooks(): readonly WebhookRecord[] {
    return [...this.webhookRegistry.webhooks.values()];
  }

  deliveries(webhook?: number): readonly Delivery[] {
    return this.webhookRegistry.deliveries(webhook);
  }

  /** Returns the number of deliveries of a type since startup. */
  deliveriesOf(type: EventType): number {
    return this.announcer.deliveriesOf(type);
  }

  /** Whether no delivery is being sent or due. */
  get isDeliveryIdle(): boolean {
    return this.engine.isIdle;
  }

  /** Stores a message to a person, because the sandbox does not send e-mail. */
  notify(notice: Omit<Notice, 'at'>): void {
    this.notices.push({ at: new Date(this.clock.wallMs()).toISOString(), ...notice });
  }

  /** Adds a change that was not made by a platform request to the request log. */
  report(text: string): void {
    this.requests.report({ at: new Date(this.clock.wallMs()).toISOString(), text });
  }

  /** Sends deliveries again, like `POST …/events`. */
  resend(ids: readonly number[]): number {
    return this.engine.resend(ids.flatMap((id) => this.webhookRegistry.delivery(id) ?? []));
  }

  onDelivery(listener: (report: DeliveryReport) => void): () => void {
    this.#deliveryListeners.add(listener);
    return () => this.#deliveryListeners.delete(listener);
  }

  /** Calls `act` after a delay in real milliseconds, unless the sandbox has been stopped. */
  later(delayMs: number, act: () => Promise<void>): void {
    this.realClock.after(delayMs, () => {
      if (this.stopping.signal.aborted) return;
      act().catch((err: unknown) =>
        this.log.error({ event: 'sandbox.later_failed', err }, 'failed to run a scheduled step'),
      );
    });
  }

  /**
   * Returns the user with an ID or e-mail address; by default, the technical user of the first client application.
   * Throws a 404 for an unknown user.
   */
  user(who?: number | string): User {
    const wanted = who ?? this.site.all('client_applications')[0]?.technical_user ?? Number.NaN;
    const found = typeof wanted === 'string' ? this.site.userByEmail(wanted) : this.site.get('users', wanted);
    if (!found) throw refusal(404, `user ${who ?? ''} was not found`);
    return found;
  }

  #reportDelivery(report: DeliveryReport): void {
    const { delivery, webhook, answer, nextInMs } = report;
    this.log.debug(
      {
        event: 'sandbox.delivery',
        webhook: webhook.id,
        delivery: delivery.id,
        eventType: delivery.eventType,
        answer,
        nextInMs,
      },
      'event sent',
    );
    for (const listener of this.#deliveryListeners) listener(report);
  }

  #noteDisabled(webhook: WebhookRecord): void {
    const contact = this.site.get('client_applications', webhook.application)?.contact;
    const text = `webhook ${webhook.id} disabled after more than two weeks of failures`;
    this.notify({ contact, text });
    this.report(`${text}; ${contact ?? 'no contact'} notified`);
    this.log.warn({ event: 'sandbox.webhook_disabled', webhook: webhook.id }, 'webhook disabled');
  }
}
