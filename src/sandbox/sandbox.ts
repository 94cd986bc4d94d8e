import { randomBytes } from 'node:crypto';
import { type Clock, systemClock } from '../clock.ts';
import type { PermissionType } from '../contract/permissions.ts';
import { PERMISSION_TYPES } from '../contract/permissions.ts';
import { type Logger, silentLogger } from '../logger.ts';
import { addAdminEndpoints } from './admin/admin-endpoints.ts';
import { addChangeEndpoints } from './admin/change-endpoints.ts';
import { addApplicationEndpoints } from './applications/application-endpoints.ts';
import { Announcer } from './events/announcer.ts';
import { PlantChanges } from './events/plant-changes.ts';
import { valueHappenings } from './events/value-events.ts';
import { Faults } from './faults.ts';
import { deprecationHeaders } from './http/deprecation-headers.ts';
import { FrontDoor } from './http/front-door.ts';
import { Listener } from './http/listener.ts';
import { refusal } from './http/refusal.ts';
import { RequestLog } from './http/request-log.ts';
import { type Route, Router } from './http/router.ts';
import { Usage } from './http/usage.ts';
import { addLabelEndpoints, type LabelBook } from './labels/label-endpoints.ts';
import { addOpenApiEndpoint } from './openapi.ts';
import type { PermitableRef } from './permissions/inheritance.ts';
import { addMembershipEndpoints } from './permissions/membership-endpoints.ts';
import { addOwnerEndpoints } from './permissions/owner-endpoints.ts';
import { PermissionBook } from './permissions/permission-book.ts';
import { addPermissionEndpoints } from './permissions/permission-endpoints.ts';
import { Visibility } from './permissions/visibility.ts';
import { Plant } from './plant/plant.ts';
import type { Owner, Threshold, User } from './plant/records.ts';
import { SandboxClock } from './sandbox-clock.ts';
import type { Outage, SandboxOptions } from './sandbox-options.ts';
import { defaultSeed } from './seed/default-seed.ts';
import { plantOf } from './seed/seed.ts';
import { readState, writeState } from './state-file.ts';
import { addIdentityEndpoints } from './tokens/identity-endpoints.ts';
import { addSignInEndpoints, CodeBook } from './tokens/sign-in.ts';
import { addTokenEndpoints } from './tokens/token-endpoints.ts';
import { TokenStore } from './tokens/token-store.ts';
import { ThresholdWatch } from './values/threshold-watch.ts';
import { ValueLedger } from './values/value-ledger.ts';
import type { PostedSeries } from './values/values-body.ts';
import { addValuesEndpoints } from './values/values-endpoint.ts';
import { DeliveryEngine, type DeliveryReport } from './webhooks/delivery-engine.ts';
import { httpSender } from './webhooks/sender.ts';
import { type Delivery, WebhookBook, type WebhookRecord } from './webhooks/webhook-book.ts';
import { addWebhookEndpoints } from './webhooks/webhook-endpoints.ts';

export type { NewFault, Poison } from './faults.ts';
export type { RequestEntry } from './http/request-log.ts';
export type { Outage, SandboxOptions } from './sandbox-options.ts';
export { defaultSeed, SANDBOX_CREDENTIALS } from './seed/default-seed.ts';
export type { SandboxSeed } from './seed/seed.ts';

/**
 * The platform as far as the spec describes it, on this machine. This class wires the rooms and offers by method what
 * `/sandbox/…` offers by HTTP: looking behind the service and causing what happens there.
 *
 * States: made, listening, away (`goOffline('refuse')`: the socket is closed, everything else goes on), stopped.
 * All state is in memory, and forgotten at a stop unless `stateFile` names where to keep it.
 */
export class Sandbox {
  readonly clock: SandboxClock;
  readonly plant: Plant;
  readonly permissions: PermissionBook;
  readonly tokens: TokenStore;
  readonly values: ValueLedger;
  readonly faults = new Faults();
  readonly requests = new RequestLog();
  readonly usage: Usage;
  readonly webhookBook: WebhookBook;
  readonly announcer: Announcer;
  readonly visibility: Visibility;
  /** What may happen in the plant, each with its event (spec 6.3). */
  readonly changes: PlantChanges;
  /** What is offered, for those who compare it with the document. */
  readonly routes: readonly Route[];
  readonly owners: Owner[];
  readonly labels: LabelBook = new Map();
  /** What contacts were told: webhooks that were disabled (spec 3.2). */
  readonly notes: { at: string; contact: string | undefined; text: string }[] = [];
  readonly #engine: DeliveryEngine;
  readonly #thresholds: ThresholdWatch;
  readonly #listener: Listener;
  readonly #adminListener: Listener | undefined;
  readonly #log: Logger;
  readonly #realClock: Clock;
  readonly #stopping = new AbortController();
  readonly #deliveryListeners = new Set<(report: DeliveryReport) => void>();
  readonly #stateFile: string | undefined;
  #outage: Outage | undefined;

  constructor(options: SandboxOptions = {}) {
    const realClock = options.clock ?? systemClock;
    this.#realClock = realClock;
    this.#stateFile = options.stateFile;
    this.#log = options.log ?? silentLogger();
    this.clock = new SandboxClock(realClock, options.speed ?? 1);
    const { plant, owners } = plantOf(options.seed ?? defaultSeed);
    this.owners = owners;
    this.plant = new Plant(plant);
    this.permissions = new PermissionBook(this.plant);
    const makeToken = () => randomBytes(32).toString('base64url');
    this.tokens = new TokenStore(this.clock, options, makeToken);
    this.values = new ValueLedger(options.values, options.mostValues);
    this.usage = new Usage(this.clock, this.plant, options.limits);
    this.webhookBook = new WebhookBook(this.clock, options.mostDeliveries);
    this.#engine = new DeliveryEngine({
      clock: this.clock,
      book: this.webhookBook,
      send: options.sendWebhook ?? httpSender(options.webhookTimeoutMs ?? 10_000, options.webhookCa),
      spend: (application, bytes) => this.usage.spend(application, bytes),
      report: (report) => this.#reportDelivery(report),
      disabled: (webhook) => this.#noteDisabled(webhook),
    });
    this.announcer = new Announcer(this.plant, this.clock, this.webhookBook, this.#engine);
    this.visibility = new Visibility(this.plant, this.permissions, ({ eventType, user, content }) => {
      this.announcer.announce({ type: eventType, audience: (other) => other === user, content: () => content });
    });
    this.#thresholds = new ThresholdWatch(this.plant, options.everyThresholdValue);
    this.changes = new PlantChanges({
      plant: this.plant,
      book: this.permissions,
      visibility: this.visibility,
      announcer: this.announcer,
      clock: this.clock,
    });

    const router = this.#routes(options, makeToken);
    this.routes = router.routes;
    const door = new FrontDoor({
      router,
      tokens: this.tokens,
      usage: this.usage,
      faults: this.faults,
      plant: this.plant,
      log: this.requests,
      logger: this.#log,
      clock: this.clock,
      realClock,
      apiKeyHeader: options.apiKeyHeader ?? '',
      outage: () => (this.#outage === 'refuse' ? 'drop' : this.#outage),
      pathHeaders: (path) => deprecationHeaders(path, this.clock.wallMs()),
      signal: this.#stopping.signal,
    });
    const host = options.host ?? '127.0.0.1';
    this.#listener = new Listener(door.handle, host, options.port ?? 0, realClock);
    if (options.adminPort !== undefined) {
      this.#adminListener = new Listener(door.handle, host, options.adminPort, realClock);
    }
  }

  /** Listens, after reading the state file where there is one. Throws `StoreError` for one that cannot be read. */
  async start(): Promise<void> {
    const resumed = this.#stateFile !== undefined && readState(this.#stateFile, this);
    await this.#listener.open();
    await this.#adminListener?.open();
    this.plant.baseUrl = this.#listener.url;
    if (resumed) this.#engine.resume();
    this.#saveFrom(10_000);
    this.#log.info({ event: 'sandbox.started', url: this.url }, 'sandbox listens');
  }

  async stop(): Promise<void> {
    this.#stopping.abort(new Error('the sandbox stops'));
    this.#engine.stop();
    if (this.#stateFile !== undefined) writeState(this.#stateFile, this);
    this.clock.stop();
    await this.#listener.close();
    await this.#adminListener?.close();
  }

  /** `http://127.0.0.1:port`: PLATFORM_URL and IDENTITY_URL. */
  get url(): string {
    return this.#listener.url;
  }

  /** Where `/sandbox/…` always answers: the second address if there is one. */
  get adminUrl(): string {
    return (this.#adminListener ?? this.#listener).url;
  }

  /** The platform goes away until `goOnline`. */
  async goOffline(how: Outage = 'refuse'): Promise<void> {
    this.#outage = how;
    this.#log.info({ event: 'sandbox.offline', how }, 'the platform goes away');
    if (how === 'refuse') await this.#listener.close();
    else await this.#listener.open();
  }

  async goOnline(): Promise<void> {
    this.#outage = undefined;
    await this.#listener.open();
    this.#log.info({ event: 'sandbox.online' }, 'the platform is back');
  }

  get outage(): Outage | undefined {
    return this.#outage;
  }

  /**
   * Gives a user (e-mail or id; the technical user of the first client application unless told) permissions on an
   * object, all four unless told, and lifts a block. What begins to be seen is announced.
   */
  grantPermission(
    on: PermitableRef,
    options: { user?: number | string; types?: readonly PermissionType[] } = {},
  ): void {
    const user = this.user(options.user);
    const types = options.types ?? PERMISSION_TYPES;
    this.visibility.during(() => {
      this.permissions.unblock(user.id, on, types);
      this.permissions.grant({ type: 'User', id: user.id }, on, types);
    });
  }

  /**
   * Takes them away, all four unless told. The user loses them even where they would be inherited (a block, which
   * `grantPermission` lifts); with `direct` only the direct grant goes and what is inherited stays, as spec 2.2 says.
   */
  takePermission(
    on: PermitableRef,
    options: { user?: number | string; types?: readonly PermissionType[]; direct?: boolean } = {},
  ): void {
    const user = this.user(options.user);
    this.visibility.during(() => {
      const record = this.permissions.find({ type: 'User', id: user.id }, on);
      const taken = options.types ?? PERMISSION_TYPES;
      if (record)
        this.permissions.setTypes(
          record,
          record.types.filter((type) => !taken.includes(type)),
        );
      if (options.direct !== true) this.permissions.block(user.id, on, taken);
    });
  }

  /** Sets a threshold on an instrumentation (or system, or recipe) and gives its id; one of the same id is replaced. */
  setThreshold(wanted: Partial<Threshold> & Pick<Threshold, 'type' | 'value'> & { instrumentation?: number }): number {
    const { instrumentation, ...rest } = wanted;
    const threshold: Threshold = {
      id: this.plant.newId(),
      name: `${wanted.type} limit`,
      thresholdable_type: 'Instrumentation',
      thresholdable_id: instrumentation ?? rest.thresholdable_id ?? 0,
      ...rest,
    };
    this.#thresholds.forget(threshold.id);
    this.plant.put('thresholds', threshold);
    return threshold.id;
  }

  removeThreshold(id: number): boolean {
    this.#thresholds.forget(id);
    return this.plant.delete('thresholds', id);
  }

  /** Webhooks as they are kept, with their secrets: for tests that sign by themselves. */
  webhooks(): readonly WebhookRecord[] {
    return [...this.webhookBook.webhooks.values()];
  }

  deliveries(webhook?: number): readonly Delivery[] {
    return this.webhookBook.deliveries(webhook);
  }

  /** Starts deliveries again, as `POST …/events` does. */
  resend(ids: readonly number[]): number {
    return this.#engine.resend(ids.flatMap((id) => this.webhookBook.delivery(id) ?? []));
  }

  onDelivery(listener: (report: DeliveryReport) => void): () => void {
    this.#deliveryListeners.add(listener);
    return () => this.#deliveryListeners.delete(listener);
  }

  /** Does something after so many real milliseconds, unless the sandbox stops before. */
  later(delayMs: number, act: () => Promise<void>): void {
    this.#realClock.after(delayMs, () => {
      if (this.#stopping.signal.aborted) return;
      act().catch((err: unknown) => this.#log.error({ event: 'sandbox.later_failed', err }, 'a delayed step failed'));
    });
  }

  /** A user by id or e-mail; the first client application's technical user unless told. Throws where there is none. */
  user(who?: number | string): User {
    const wanted = who ?? this.plant.all('client_applications')[0]?.technical_user;
    const found =
      typeof wanted === 'string' ? this.plant.userByEmail(wanted) : this.plant.get('users', wanted ?? Number.NaN);
    if (!found) throw refusal(404, `user ${who ?? ''} was not found`);
    return found;
  }

  /** Saves the state every so many real milliseconds. */
  #saveFrom(intervalMs: number): void {
    const file = this.#stateFile;
    if (file === undefined) return;
    this.later(intervalMs, async () => {
      this.#saveFrom(intervalMs);
      writeState(file, this);
    });
  }

  #routes(options: SandboxOptions, makeToken: () => string): Router {
    const router = new Router();
    addTokenEndpoints(router, this.plant, this.tokens);
    const codes = new CodeBook(this.clock);
    addSignInEndpoints(router, this.plant, codes);
    addIdentityEndpoints(router, this.plant, this.tokens, codes);
    const permissionRoom = { plant: this.plant, book: this.permissions, visibility: this.visibility };
    addPermissionEndpoints(router, permissionRoom);
    addOwnerEndpoints(router, permissionRoom, this.owners);
    addMembershipEndpoints(router, this.plant);
    addLabelEndpoints(router, this.plant, this.permissions, this.labels);
    addApplicationEndpoints(router, this.plant, this.usage);
    addValuesEndpoints(router, {
      plant: this.plant,
      book: this.permissions,
      ledger: this.values,
      clock: this.clock,
      invalidValues: options.invalidValues ?? 'refuse',
      examine: (asset, posted) => this.#examine(asset, posted),
      stored: (asset, posted) => this.#stored(asset, posted),
    });
    addWebhookEndpoints(router, {
      book: this.webhookBook,
      engine: this.#engine,
      makeSecret: makeToken,
      deliveriesUnder: options.deliveriesUnder ?? 'events',
    });
    addOpenApiEndpoint(router, () => this.url);
    addAdminEndpoints(router, this);
    addChangeEndpoints(router, this.plant, this.changes);
    return router;
  }

  #examine(asset: number, posted: readonly PostedSeries[]): void {
    const refused = this.faults.refusalOf(asset, posted);
    if (refused) throw refusal(refused.status, `a value of ${refused.key} is refused`, 'values');
  }

  #stored(asset: number, posted: readonly PostedSeries[]): void {
    const mayRead = (user: number, type: 'Asset' | 'Instrumentation', id: number) =>
      this.permissions.may(user, 'can_read', { type, id });
    // Built only where somebody listens: a post of 5,000 values would make 5,000 happenings.
    if (this.announcer.hasListener(/_values?_created$/)) {
      for (const happening of valueHappenings(this.plant, asset, posted, mayRead)) this.announcer.announce(happening);
    }
    for (const { content } of this.#thresholds.reached(asset, posted)) {
      this.announcer.announce({
        type: 'threshold_reached',
        audience: (user) => mayRead(user, 'Asset', asset),
        content: () => ({ ...content }),
      });
    }
  }

  #reportDelivery(report: DeliveryReport): void {
    const { delivery, webhook, answer, nextInMs } = report;
    this.#log.debug(
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
    const contact = this.plant.get('client_applications', webhook.application)?.contact;
    const text = `webhook ${webhook.id} failed for more than two weeks and is disabled`;
    this.notes.push({ at: new Date(this.clock.wallMs()).toISOString(), contact, text });
    this.#log.warn({ event: 'sandbox.webhook_disabled', webhook: webhook.id }, 'webhook is disabled');
  }
}
