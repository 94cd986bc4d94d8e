import type { EventType } from '../contract/events.ts';
import { addAdminEndpoints } from './admin/admin-endpoints.ts';
import { addFaultEndpoints } from './admin/fault-endpoints.ts';
import { addSiteEndpoints } from './admin/site-endpoints.ts';
import type { Caused, EventRequest } from './causes/cause.ts';
import { triggerEvent } from './causes/trigger.ts';
import { Addresses } from './http/listener.ts';
import { RequestHandler } from './http/request-handler.ts';
import { type Route, Router } from './http/router.ts';
import { addSignInEndpoints } from './identity/sign-in.ts';
import { addSignUpEndpoints } from './identity/sign-up.ts';
import { addLabelEndpoints } from './labels/label-endpoints.ts';
import { addMembershipEndpoints } from './permissions/membership-endpoints.ts';
import { addPermissionEndpoints } from './permissions/permission-endpoints.ts';
import type { Outage, SandboxOptions } from './sandbox-options.ts';
import { addObjectEndpoints } from './site/object-endpoints.ts';
import { Stage } from './stage.ts';
import { addTokenEndpoints } from './tokens/token-endpoints.ts';
import { addValuesEndpoints } from './values/values-endpoint.ts';
import { addWebhookEndpoints } from './webhooks/webhook-endpoints.ts';

export type { Caused, EventRequest } from './causes/cause.ts';
export type { RequestEntry } from './http/request-log.ts';
export type { Outage, SandboxOptions } from './sandbox-options.ts';
export { defaultSeed, SANDBOX_CREDENTIALS } from './seed/default-seed.ts';
export type { SandboxSeed } from './seed/seed.ts';

/** Endpoints of the platform (platform 4 and 10) and of the admin API. */
const ENDPOINTS: readonly ((router: Router, stage: Stage) => void)[] = [
  addTokenEndpoints,
  addSignInEndpoints,
  addSignUpEndpoints,
  addPermissionEndpoints,
  addMembershipEndpoints,
  addLabelEndpoints,
  addObjectEndpoints,
  addValuesEndpoints,
  addWebhookEndpoints,
  addAdminEndpoints,
  addFaultEndpoints,
  addSiteEndpoints,
];

/**
 * Simulates the platform on this machine, as far as the specification describes it. Adds the HTTP interface to the
 * state in `Stage`, and provides the functions of `/sandbox/…` as methods.
 *
 * States: created, listening, offline (`goOffline('refuse')` closes the socket, everything else continues), stopped.
 * All state is in memory and is lost when the sandbox stops.
 */
export class Sandbox extends Stage {
  /** All routes, for tests. */
  readonly routes: readonly Route[];
  readonly #addresses: Addresses;
  #outage: Outage | undefined;

  constructor(options: SandboxOptions = {}) {
    super(options);
    const router = new Router();
    for (const add of ENDPOINTS) add(router, this);
    this.routes = router.routes;
    this.#addresses = new Addresses(new RequestHandler(router, this), options, this.realClock);
  }

  async start(): Promise<void> {
    await this.#addresses.openAll();
    this.site.baseUrl = this.url;
    this.log.info({ event: 'sandbox.started', url: this.url }, 'sandbox listening');
  }

  async stop(): Promise<void> {
    this.stopping.abort(new Error('the sandbox is stopping'));
    this.engine.stop();
    this.clock.stop();
    await this.#addresses.endAll();
  }

  get url(): string {
    return this.#addresses.url;
  }

  get identityUrl(): string {
    return this.#addresses.identityUrl;
  }

  get adminUrl(): string {
    return this.#addresses.adminUrl;
  }

  /** Makes the platform unavailable until `goOnline`. */
  async goOffline(how: Outage = 'refuse'): Promise<void> {
    this.#outage = how;
    this.report('platform unavailable');
    this.log.info({ event: 'sandbox.offline', how }, 'platform unavailable');
    if (how === 'refuse') await this.#addresses.close();
    else await this.#addresses.open();
  }

  async goOnline(): Promise<void> {
    this.#outage = undefined;
    await this.#addresses.open();
    this.report('platform available');
    this.log.info({ event: 'sandbox.online' }, 'platform available');
  }

  get outage(): Outage | undefined {
    return this.#outage;
  }

  /** Triggers an event of any of the 23 types (platform 6.3). Omitted members have defaults. */
  cause(type: EventType, request: EventRequest = {}): Caused {
    return triggerEvent(this, type, request);
  }
}
