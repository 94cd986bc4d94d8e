import { addApplicationEndpoints } from './applications/application-endpoints.ts';
import type { Faults } from './faults.ts';
import { refusal } from './http/refusal.ts';
import { Router } from './http/router.ts';
import type { Usage } from './http/usage.ts';
import type { CodeRegistry } from './identity/code-registry.ts';
import { addIdentityEndpoints } from './identity/identity-endpoints.ts';
import { addSignInEndpoints } from './identity/sign-in.ts';
import { addSignUpEndpoints } from './identity/sign-up.ts';
import { addSubscriptionPages } from './identity/subscription-page.ts';
import { addLabelEndpoints, type LabelRegistry } from './labels/label-endpoints.ts';
import { CAN_PERMIT_OFFSET } from './permissions/id-offsets.ts';
import { addMembershipEndpoints } from './permissions/membership-endpoints.ts';
import { addOwnerEndpoints } from './permissions/owner-endpoints.ts';
import { addPermissionEndpoints } from './permissions/permission-endpoints.ts';
import type { PermissionRegistry } from './permissions/permission-registry.ts';
import type { Visibility } from './permissions/visibility.ts';
import type { SandboxClock } from './sandbox-clock.ts';
import type { SandboxOptions } from './sandbox-options.ts';
import { addObjectEndpoints } from './site/object-endpoints.ts';
import type { Notice, Owner } from './site/records.ts';
import type { SiteModel } from './site/site-model.ts';
import type { Strictness } from './strictness.ts';
import { Clients } from './tokens/client-auth.ts';
import { addTokenEndpoints } from './tokens/token-endpoints.ts';
import type { TokenStore } from './tokens/token-store.ts';
import type { ValueArrival } from './values/value-arrival.ts';
import type { ValueLedger } from './values/value-ledger.ts';
import { addValuesEndpoints } from './values/values-endpoint.ts';
import type { DeliveryEngine } from './webhooks/delivery-engine.ts';
import { addWebhookEndpoints } from './webhooks/webhook-endpoints.ts';
import type { WebhookRegistry } from './webhooks/webhook-registry.ts';

/** The contexts that the platform's endpoints open into. */
export interface PlatformContexts {
  clock: SandboxClock;
  site: SiteModel;
  permissions: PermissionRegistry;
  visibility: Visibility;
  owners: Owner[];
  labels: LabelRegistry;
  tokens: TokenStore;
  codes: CodeRegistry;
  usage: Usage;
  values: ValueLedger;
  arrival: ValueArrival;
  faults: Faults;
  webhookRegistry: WebhookRegistry;
  engine: DeliveryEngine;
  notices: Notice[];
  /** {web_url}, known once the sandbox listens. */
  webUrl(): string;
}

/** Every endpoint of platform 4 and 10. */
export function platformRoutes(contexts: PlatformContexts, options: SandboxOptions, makeToken: () => string): Router {
  const { site, permissions, visibility, tokens, codes, faults, clock } = contexts;
  const router = new Router();
  const strict: Strictness = new Set(options.strict);
  const clients = new Clients(site, strict);
  addTokenEndpoints(router, site, clients, tokens, strict);
  addSignInEndpoints(router, site, codes, strict);
  addSignUpEndpoints(router, { site, clock, notices: contexts.notices, makeToken, webUrl: contexts.webUrl });
  addSubscriptionPages(router, site, makeToken);
  addIdentityEndpoints(router, site, clients, tokens, codes);
  const permissionContext = {
    site,
    registry: permissions,
    visibility,
    canPermitOffset: options.canPermitOffset ?? CAN_PERMIT_OFFSET,
  };
  addPermissionEndpoints(router, permissionContext);
  addOwnerEndpoints(router, permissionContext, contexts.owners);
  addMembershipEndpoints(router, site, strict);
  addLabelEndpoints(router, site, permissions, contexts.labels);
  addObjectEndpoints(router, site, permissions);
  addApplicationEndpoints(router, site, contexts.usage);
  addValuesEndpoints(router, {
    site,
    registry: permissions,
    ledger: contexts.values,
    arrival: contexts.arrival,
    clock,
    invalidValues: options.invalidValues ?? 'refuse',
    examine: (asset, posted) => {
      const refused = faults.refusalOf(asset, posted);
      if (refused) throw refusal(refused.status, `a value of ${refused.key} is refused`, 'values');
    },
  });
  addWebhookEndpoints(router, {
    registry: contexts.webhookRegistry,
    engine: contexts.engine,
    makeSecret: makeToken,
    deliveriesUnder: options.deliveriesUnder ?? 'events',
    strict,
    technicalUser: (application) => site.get('client_applications', application)?.technical_user,
    hasEventTypeCode: (code) => site.all('event_types').some((type) => type.code === code),
  });
  return router;
}
