import { randomBytes } from 'node:crypto';
import { type Clock, systemClock } from '../clock.ts';
import type { EventType } from '../contract/events.ts';
import { type Logger, silentLogger } from '../logger.ts';
import { addAdminEndpoints } from './admin/admin-endpoints.ts';
import { addCauseEndpoints } from './admin/cause-endpoints.ts';
import { addChangeEndpoints } from './admin/change-endpoints.ts';
import { addFaultEndpoints } from './admin/fault-endpoints.ts';
import type { Stage } from './admin/stage.ts';
import { bringAbout } from './causes/bring.ts';
import type { Caused, Wish } from './causes/cause.ts';
import { Announcer } from './events/announcer.ts';
import { PlantChanges } from './events/plant-changes.ts';
import { Faults } from './faults.ts';
import { deprecationHeaders } from './http/deprecation-headers.ts';
import { FrontDoor } from './http/front-door.ts';
import { Listener } from './http/listener.ts';
import { RequestLog } from './http/request-log.ts';
import type { Route } from './http/router.ts';
import { Usage } from './http/usage.ts';
import type { LabelBook } from './labels/label-endpoints.ts';
import { addOpenApiEndpoint } from './openapi.ts';
import { chosenRules, type InheritanceRule, type PermitableRef } from './permissions/inheritance.ts';
import { PermissionBook } from './permissions/permission-book.ts';
import { type HandOptions, PermissionHand } from './permissions/permission-hand.ts';
import { Visibility } from './permissions/visibility.ts';
import { Plant } from './plant/plant.ts';
import type { Note, Owner, User } from './plant/records.ts';
import { platformRoutes } from './platform-routes.ts';
import { SandboxClock } from './sandbox-clock.ts';
import type { Outage, SandboxOptions } from './sandbox-options.ts';
import { defaultSeed } from './seed/default-seed.ts';
import { plantOf } from './seed/seed.ts';
import { readState, writeState } from './state-file.ts';
import { CodeBook } from './tokens/sign-in.ts';
import { TokenStore } from './tokens/token-store.ts';
import { type NewThreshold, ThresholdWatch } from './values/threshold-watch.ts';
import { ValueArrival } from './values/value-arrival.ts';
import { ValueLedger } from './values/value-ledger.ts';
import type { PostedSeries } from './values/values-body.ts';
import { DeliveryEngine, type DeliveryReport } from './webhooks/delivery-engine.ts';
import { httpSender } from './webhooks/sender.ts';
import { type Delivery, WebhookBook, type WebhookRecord } from './webhooks/webhook-book.ts';

export type { Caused, Wish } from './causes/cause.ts';
export type { NewFault, Poison } from './faults.ts';
export type { Happened, RequestEntry } from './http/request-log.ts';
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
export class Sandbox implements Stage {
  readonly clock: SandboxClock;
  readonly plant: Plant;
  readonly permissions: PermissionBook;
  readonly tokens: TokenStore;
  readonly codes: CodeBook;
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
  readonly notes: Note[] = [];
  readonly engine: DeliveryEngine;
  readonly thresholds: ThresholdWatch;
  readonly arrival: ValueArrival;
  /** The edges of the model graph that are in force (spec 2.2). */
  readonly inheritance: readonly InheritanceRule[];
  readonly #hand: PermissionHand;
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
    this.inheritance = chosenRules(options.inheritance);
    this.permissions = new PermissionBook(this.plant, this.inheritance);
    const makeToken = () => randomBytes(32).toString('base64url');
    const isThere = (user: number, application: number) =>
      this.plant.get('users', user) !== undefined && this.plant.get('client_applications', application) !== undefined;
    this.tokens = new TokenStore(this.clock, options, makeToken, isThere);
    this.codes = new CodeBook(this.clock);
    this.values = new ValueLedger(options.values, options.mostValues);
    this.usage = new Usage(this.clock, this.plant, options.limits);
    this.webhookBook = new WebhookBook(this.clock, options.mostDeliveries);
    this.engine = new DeliveryEngine({
      clock: this.clock,
      book: this.webhookBook,
      send: options.sendWebhook ?? httpSender(options.webhookTimeoutMs ?? 10_000, options.webhookCa),
      spend: (application, bytes) => this.plant.isSubscribed(application) && this.usage.spend(application, bytes),
      report: (report) => this.#reportDelivery(report),
      disabled: (webhook) => this.#noteDisabled(webhook),
    });
    this.announcer = new Announcer(this.plant, this.clock, this.webhookBook, this.engine);
    this.visibility = new Visibility(this.plant, this.permissions, ({ eventType, user, content }) => {
      this.announcer.announce({ type: eventType, audience: (other) => other === user, content: () => content });
    });
    const told = (sentence: string) => this.told(sentence);
    this.#hand = new PermissionHand(this.plant, this.permissions, this.visibility, told);
    this.thresholds = new ThresholdWatch(this.plant, options.everyThresholdValue);
    this.arrival = new ValueArrival({
      plant: this.plant,
      book: this.permissions,
      ledger: this.values,
      thresholds: this.thresholds,
      announcer: this.announcer,
      told,
    });
    this.changes = new PlantChanges(
      {
        plant: this.plant,
        book: this.permissions,
        owners: this.owners,
        visibility: this.visibility,
        announcer: this.announcer,
        clock: this.clock,
        told,
      },
      options.edgeDeviceOfflineAfterMs ?? 5 * 60_000,
    );

    const router = platformRoutes(this, options, makeToken);
    addOpenApiEndpoint(router, () => this.url);
    addAdminEndpoints(router, this);
    addFaultEndpoints(router, this);
    addChangeEndpoints(router, this.plant, this.changes, this.owners);
    addCauseEndpoints(router, this);
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
      pathHeaders: (path) => deprecationHeaders(path, this.clock.wallMs(), options.afterSunsetStatus),
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
    if (resumed) {
      this.engine.resume();
      this.changes.edgeDevices.resume();
    }
    this.#saveFrom(10_000);
    this.#log.info({ event: 'sandbox.started', url: this.url }, 'sandbox listens');
  }

  async stop(): Promise<void> {
    this.#stopping.abort(new Error('the sandbox stops'));
    this.engine.stop();
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
    this.told('the platform goes away');
    this.#log.info({ event: 'sandbox.offline', how }, 'the platform goes away');
    if (how === 'refuse') await this.#listener.close();
    else await this.#listener.open();
  }

  async goOnline(): Promise<void> {
    this.#outage = undefined;
    await this.#listener.open();
    this.told('the platform is back');
    this.#log.info({ event: 'sandbox.online' }, 'the platform is back');
  }

  get outage(): Outage | undefined {
    return this.#outage;
  }

  /**
   * Gives a user (e-mail or id; the technical user of the first client application unless told) permissions on an
   * object, all four unless told, and lifts a block. What begins to be seen is announced.
   */
  grantPermission(on: PermitableRef, options: HandOptions = {}): void {
    this.#hand.grant(on, options);
  }

  /**
   * Takes them away, all four unless told. The user loses them even where they would be inherited (a block, which
   * `grantPermission` lifts); with `direct` only the direct grant goes and what is inherited stays, as spec 2.2 says.
   */
  takePermission(on: PermitableRef, options: HandOptions & { direct?: boolean } = {}): void {
    this.#hand.take(on, options);
  }

  /** Sets a threshold on an instrumentation (or system, or recipe) and gives its id; one of the same id is replaced. */
  setThreshold(wanted: NewThreshold): number {
    return this.thresholds.set(wanted);
  }

  removeThreshold(id: number): boolean {
    return this.thresholds.remove(id);
  }

  /** Values as if they had been posted and were valid. */
  takeValues(asset: number, posted: readonly PostedSeries[]): void {
    this.arrival.take(asset, posted);
  }

  /** Brings any of the 23 event types about (spec 6.3); what the wish leaves out is chosen. */
  cause(type: EventType, wish: Wish = {}): Caused {
    return bringAbout(this, type, wish);
  }

  /** Webhooks as they are kept, with their secrets: for tests that sign by themselves. */
  webhooks(): readonly WebhookRecord[] {
    return [...this.webhookBook.webhooks.values()];
  }

  deliveries(webhook?: number): readonly Delivery[] {
    return this.webhookBook.deliveries(webhook);
  }

  /** How many deliveries of a type there were since the start. */
  toldOf(type: EventType): number {
    return this.announcer.toldOf(type);
  }

  /** Whether no webhook is being sent now and none is due. */
  get isDeliveryIdle(): boolean {
    return this.engine.isIdle;
  }

  /** Says in the request log what happened behind the scenes. */
  told(text: string): void {
    this.requests.tell({ at: new Date(this.clock.wallMs()).toISOString(), text });
  }

  /** Starts deliveries again, as `POST …/events` does. */
  resend(ids: readonly number[]): number {
    return this.engine.resend(ids.flatMap((id) => this.webhookBook.delivery(id) ?? []));
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
    return this.#hand.user(who);
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
    this.told(`${text}; ${contact ?? 'nobody'} is told`);
    this.#log.warn({ event: 'sandbox.webhook_disabled', webhook: webhook.id }, 'webhook is disabled');
  }
}
