import { randomBytes } from 'node:crypto';
import { type Clock, systemClock } from '../base/clock.ts';
import { isLoopbackHost } from '../base/listen.ts';
import { type Logger, silentLogger } from '../base/logger.ts';
import type { EventType } from '../contract/events.ts';
import { addBehindTheScenes } from './admin/behind-the-scenes.ts';
import type { Stage } from './admin/stage.ts';
import type { Caused, EventRequest } from './causes/cause.ts';
import { triggerEvent } from './causes/trigger.ts';
import { Announcer } from './events/announcer.ts';
import { SiteChanges } from './events/site-changes.ts';
import { ClientExam } from './exam/client-exam.ts';
import { type DrillScope, runDrill } from './exam/drill.ts';
import { Faults } from './faults.ts';
import { Addresses } from './http/addresses.ts';
import { deprecationHeaders } from './http/deprecation-headers.ts';
import { RequestHandler } from './http/request-handler.ts';
import { RequestLog } from './http/request-log.ts';
import type { Route } from './http/router.ts';
import { Usage } from './http/usage.ts';
import { CodeRegistry } from './identity/code-registry.ts';
import type { LabelRegistry } from './labels/label-endpoints.ts';
import { addOpenApiEndpoints } from './openapi/document.ts';
import { recordDistance } from './permissions/id-offsets.ts';
import { chosenRules, type InheritanceRule, type PermitableRef } from './permissions/inheritance.ts';
import { PermissionAdmin, type PermissionAdminOptions } from './permissions/permission-admin.ts';
import { PermissionRegistry } from './permissions/permission-registry.ts';
import { Visibility } from './permissions/visibility.ts';
import { platformRoutes } from './platform-routes.ts';
import { type Expectation, expectRequests } from './requests/expectation.ts';
import type { WholeRequest } from './requests/whole-request.ts';
import { SandboxClock } from './sandbox-clock.ts';
import type { Outage, SandboxOptions } from './sandbox-options.ts';
import { defaultSeed } from './seed/default-seed.ts';
import { siteOf } from './seed/seed.ts';
import type { Notice, Owner, User } from './site/records.ts';
import { SiteModel } from './site/site-model.ts';
import { readState, writeState } from './state-file.ts';
import { TokenStore } from './tokens/token-store.ts';
import { type NewThreshold, ThresholdWatch } from './values/threshold-watch.ts';
import { ValueArrival } from './values/value-arrival.ts';
import { ValueLedger } from './values/value-ledger.ts';
import type { PostedSeries } from './values/values-body.ts';
import { DeliveryEngine, type DeliveryReport } from './webhooks/delivery-engine.ts';
import { httpSender } from './webhooks/sender.ts';
import { WebhookFaults } from './webhooks/webhook-faults.ts';
import { type Delivery, type WebhookRecord, WebhookRegistry } from './webhooks/webhook-registry.ts';

export type { Caused, EventRequest } from './causes/cause.ts';
export type { RequestEntry } from './http/request-entry.ts';
export { type Expectation, ExpectationError } from './requests/expectation.ts';
export type { WholeRequest } from './requests/whole-request.ts';
export type { Outage, SandboxOptions } from './sandbox-options.ts';
export { defaultSeed, SANDBOX_CREDENTIALS } from './seed/default-seed.ts';
export type { SandboxSeed } from './seed/seed.ts';

/**
 * The platform as far as the spec describes it, on this machine. This class wires the contexts and offers by method what
 * `/sandbox/…` offers by HTTP: looking behind the service and causing what happens there.
 *
 * States: made, listening, away (`goOffline('refuse')`: the socket is closed, everything else goes on), stopped.
 * All state is in memory, and forgotten at a stop unless `stateFile` names where to keep it.
 */
export class Sandbox implements Stage {
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
  /** What may happen in the site, each with its event (platform 6.3). */
  readonly changes: SiteChanges;
  /** What is offered, for those who compare it with the document. */
  readonly routes: readonly Route[];
  readonly owners: Owner[];
  readonly labels: LabelRegistry = new Map();
  /** What contacts were sent: webhooks that were disabled (platform 3.2). */
  readonly notices: Notice[] = [];
  readonly engine: DeliveryEngine;
  readonly thresholds: ThresholdWatch;
  readonly arrival: ValueArrival;
  /** Marks what clients send; at rest until it begins. */
  readonly clientExam: ClientExam;
  /** The edges of the model graph that are in force (platform 2.2). */
  readonly inheritance: readonly InheritanceRule[];
  readonly #permissionAdmin: PermissionAdmin;
  readonly #addresses: Addresses;
  readonly #log: Logger;
  readonly #realClock: Clock;
  readonly #stopping = new AbortController();
  readonly #say = (sentence: string) => this.report(sentence);
  readonly #deliveryListeners = new Set<(report: DeliveryReport) => void>();
  readonly #stateFile: string | undefined;
  #outage: Outage | undefined;

  constructor(options: SandboxOptions = {}) {
    const realClock = options.clock ?? systemClock;
    this.#realClock = realClock;
    this.#stateFile = options.stateFile;
    this.#log = options.log ?? silentLogger();
    this.clock = new SandboxClock(realClock, options.speed ?? 1, options.nowMs);
    const idDistance = recordDistance(options.canPermitOffset);
    const { site, owners } = siteOf(options.seed ?? defaultSeed, idDistance);
    this.owners = owners;
    this.site = new SiteModel(site, idDistance);
    this.inheritance = chosenRules(options.inheritance);
    this.permissions = new PermissionRegistry(this.site, this.inheritance);
    const makeToken = () => randomBytes(32).toString('base64url');
    const isThere = (user: number, application: number) =>
      this.site.get('users', user) !== undefined && this.site.get('client_applications', application) !== undefined;
    this.tokens = new TokenStore(this.clock, options, makeToken, isThere);
    this.codes = new CodeRegistry(this.clock);
    this.values = new ValueLedger(options.values, options.maxValues);
    this.usage = new Usage(this.clock, this.site, options.limits);
    this.webhookRegistry = new WebhookRegistry(this.clock, options.maxDeliveries);
    const send = options.sendWebhook ?? httpSender(options.webhookTimeoutMs ?? 10_000, options.webhookCa);
    this.webhookFaults = new WebhookFaults(send, realClock, this.#say, this.#stopping.signal);
    this.engine = new DeliveryEngine({
      clock: this.clock,
      registry: this.webhookRegistry,
      send: (post, delivery, webhook) => this.webhookFaults.send(post, delivery, webhook),
      spend: (application, bytes) => this.site.isSubscribed(application) && this.usage.spend(application, bytes),
      report: (report) => this.#reportDelivery(report),
      disabled: (webhook) => this.#noteDisabled(webhook),
    });
    this.announcer = new Announcer(this.site, this.clock, this.webhookRegistry, this.engine, options.eventTimes);
    this.visibility = new Visibility(this.site, this.permissions, ({ eventType, user, content }) => {
      this.announcer.announce({ type: eventType, audience: (other) => other === user, content: () => content });
    });
    this.#permissionAdmin = new PermissionAdmin(this.site, this.permissions, this.visibility, this.#say);
    this.thresholds = new ThresholdWatch(this.site, options.everyThresholdValue);
    this.arrival = new ValueArrival({
      site: this.site,
      registry: this.permissions,
      ledger: this.values,
      thresholds: this.thresholds,
      announcer: this.announcer,
      report: this.#say,
    });
    this.changes = new SiteChanges(
      {
        site: this.site,
        registry: this.permissions,
        owners: this.owners,
        visibility: this.visibility,
        announcer: this.announcer,
        clock: this.clock,
        report: this.#say,
      },
      options.edgeDeviceOfflineAfterMs ?? 5 * 60_000,
    );
    this.clientExam = new ClientExam(this.requests, realClock, {
      ownerOf: (token) => this.tokens.ownerOf(token),
      isOffered: (method, path) => 'route' in router.find(method === 'HEAD' ? 'GET' : method, path),
      leftOfMinuteMs: () => this.usage.leftOfMinuteMs(),
    });
    const host = options.host ?? '127.0.0.1';
    const router = platformRoutes({ ...this, webUrl: () => this.identityUrl }, options, makeToken);
    addOpenApiEndpoints(
      router,
      () => this.url,
      () => this.identityUrl,
    );
    addBehindTheScenes(router, this, this.owners);
    this.routes = router.routes;
    const handler = new RequestHandler({
      router,
      tokens: this.tokens,
      usage: this.usage,
      faults: this.faults,
      site: this.site,
      log: this.requests,
      logger: this.#log,
      clock: this.clock,
      realClock,
      apiKeyHeader: options.apiKeyHeader ?? '',
      isJsonTypeNeeded: options.strict?.includes('json-type') ?? false,
      corsOrigin: options.corsOrigin,
      outage: () => (this.#outage === 'refuse' ? 'drop' : this.#outage),
      pathHeaders: (path) => deprecationHeaders(path, this.clock.wallMs(), options.afterSunsetStatus),
      isLoopback: isLoopbackHost(host),
      signal: this.#stopping.signal,
    });
    const { port = 0, adminPort, identityPort } = options;
    this.#addresses = new Addresses(handler, { host, port, adminPort, identityPort }, realClock);
  }

  /** Listens, after reading the state file where there is one. Throws `StoreError` for one that cannot be read. */
  async start(): Promise<void> {
    const resumed = this.#stateFile !== undefined && readState(this.#stateFile, this);
    await this.#addresses.openAll();
    this.site.baseUrl = this.url;
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
    await this.#addresses.endAll();
  }

  /** `http://127.0.0.1:port`: {base_url}, PLATFORM_URL. */
  get url(): string {
    return this.#addresses.url;
  }

  /** {web_url}, IDENTITY_URL: the same unless it has an address of its own. */
  get identityUrl(): string {
    return this.#addresses.identityUrl;
  }

  /** Where `/sandbox/…` always answers: the second address if there is one. */
  get adminUrl(): string {
    return this.#addresses.adminUrl;
  }

  /** The platform goes away until `goOnline`. */
  async goOffline(how: Outage = 'refuse'): Promise<void> {
    this.#outage = how;
    this.report('the platform goes away');
    this.#log.info({ event: 'sandbox.offline', how }, 'the platform goes away');
    if (how === 'refuse') await this.#addresses.close();
    else await this.#addresses.open();
  }

  async goOnline(): Promise<void> {
    this.#outage = undefined;
    await this.#addresses.open();
    this.report('the platform is back');
    this.#log.info({ event: 'sandbox.online' }, 'the platform is back');
  }

  get outage(): Outage | undefined {
    return this.#outage;
  }

  /**
   * Gives a user (e-mail or id; the technical user of the first client application unless given) permissions on an
   * object, all four unless given, and lifts a block. What begins to be seen is announced.
   */
  grantPermission(on: PermitableRef, options: PermissionAdminOptions = {}): void {
    this.#permissionAdmin.grant(on, options);
  }

  /**
   * Takes them away, all four unless given. The user loses them even where they would be inherited (a block, which
   * `grantPermission` lifts); with `direct` only the direct grant goes and what is inherited stays, as platform 2.2 says.
   */
  takePermission(on: PermitableRef, options: PermissionAdminOptions & { direct?: boolean } = {}): void {
    this.#permissionAdmin.take(on, options);
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

  /** Triggers any of the 23 event types (platform 6.3); what is left out is chosen. */
  cause(type: EventType, request: EventRequest = {}): Caused {
    return triggerEvent(this, type, request);
  }

  /** Webhooks as they are kept, with their secrets: for tests that sign by themselves. */
  webhooks(): readonly WebhookRecord[] {
    return [...this.webhookRegistry.webhooks.values()];
  }

  deliveries(webhook?: number): readonly Delivery[] {
    return this.webhookRegistry.deliveries(webhook);
  }

  /** How many deliveries of a type there were since the start. */
  deliveriesOf(type: EventType): number {
    return this.announcer.deliveriesOf(type);
  }

  /** Whether no webhook is being sent now and none is due. */
  get isDeliveryIdle(): boolean {
    return this.engine.isIdle;
  }

  /** Says in the request log what happened behind the scenes. */
  report(text: string): void {
    this.requests.tell({ at: new Date(this.clock.wallMs()).toISOString(), text });
  }

  /** Starts deliveries again, as `POST …/events` does. */
  resend(ids: readonly number[]): number {
    return this.engine.resend(ids.flatMap((id) => this.webhookRegistry.delivery(id) ?? []));
  }

  /**
   * Waits until requests have come, those of before the call included, and gives them whole with their secrets masked: "a post for asset
   * 881 within 5 s" is `{ method: 'POST', asset: 881 }`. Throws `ExpectationError`, which says what came instead.
   */
  expectRequests(expectation: Expectation): Promise<WholeRequest[]> {
    return expectRequests(this.requests, expectation, this.#realClock, this.#stopping.signal);
  }

  /** The first of them. */
  async expectRequest(expectation: Expectation): Promise<WholeRequest> {
    const [first] = await this.expectRequests({ ...expectation, never: false });
    return first!;
  }

  /**
   * Takes the client under exam through what it meets in the field, and, where asked to, a person's sign-in by it. Gives the
   * steps that it never met.
   */
  provokeClient(scope: Partial<DrillScope> = {}, onStep?: (what: string) => void): Promise<string[]> {
    const parts = { log: this.requests, faults: this.faults, tokens: this.tokens, clock: this.#realClock };
    const report = (what: string) => {
      this.report(`exam: ${what}`);
      onStep?.(what);
    };
    return runDrill({ ...parts, report }, { field: true, signIn: false, ...scope }, this.#stopping.signal);
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

  /** A user by id or e-mail; the first client application's technical user unless given. Throws where there is none. */
  user(who?: number | string): User {
    return this.#permissionAdmin.user(who);
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
    const contact = this.site.get('client_applications', webhook.application)?.contact;
    const text = `webhook ${webhook.id} failed for more than two weeks and is disabled`;
    this.notices.push({ at: new Date(this.clock.wallMs()).toISOString(), contact, text });
    this.report(`${text}; ${contact ?? 'nobody'} is told`);
    this.#log.warn({ event: 'sandbox.webhook_disabled', webhook: webhook.id }, 'webhook is disabled');
  }
}
