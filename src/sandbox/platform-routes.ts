import { addApplicationEndpoints } from './applications/application-endpoints.ts';
import type { Faults } from './faults.ts';
import { refusal } from './http/refusal.ts';
import { Router } from './http/router.ts';
import type { Usage } from './http/usage.ts';
import { addLabelEndpoints, type LabelBook } from './labels/label-endpoints.ts';
import { addMembershipEndpoints } from './permissions/membership-endpoints.ts';
import { addOwnerEndpoints } from './permissions/owner-endpoints.ts';
import type { PermissionBook } from './permissions/permission-book.ts';
import { addPermissionEndpoints, CAN_PERMIT_OFFSETS } from './permissions/permission-endpoints.ts';
import type { Visibility } from './permissions/visibility.ts';
import type { Plant } from './plant/plant.ts';
import type { Owner } from './plant/records.ts';
import type { SandboxClock } from './sandbox-clock.ts';
import type { SandboxOptions } from './sandbox-options.ts';
import { addIdentityEndpoints } from './tokens/identity-endpoints.ts';
import { addSignInEndpoints, type CodeBook } from './tokens/sign-in.ts';
import { addTokenEndpoints } from './tokens/token-endpoints.ts';
import type { TokenStore } from './tokens/token-store.ts';
import type { ValueArrival } from './values/value-arrival.ts';
import type { ValueLedger } from './values/value-ledger.ts';
import { addValuesEndpoints } from './values/values-endpoint.ts';
import type { DeliveryEngine } from './webhooks/delivery-engine.ts';
import type { WebhookBook } from './webhooks/webhook-book.ts';
import { addWebhookEndpoints } from './webhooks/webhook-endpoints.ts';

/** The rooms that the platform's endpoints open into. */
export interface PlatformRooms {
  clock: SandboxClock;
  plant: Plant;
  permissions: PermissionBook;
  visibility: Visibility;
  owners: Owner[];
  labels: LabelBook;
  tokens: TokenStore;
  codes: CodeBook;
  usage: Usage;
  values: ValueLedger;
  arrival: ValueArrival;
  faults: Faults;
  webhookBook: WebhookBook;
  engine: DeliveryEngine;
}

/** Every endpoint of spec section 4 and of beyond-the-spec. */
export function platformRoutes(rooms: PlatformRooms, options: SandboxOptions, makeToken: () => string): Router {
  const { plant, permissions, visibility, tokens, codes, faults, clock } = rooms;
  const router = new Router();
  addTokenEndpoints(router, plant, tokens);
  addSignInEndpoints(router, plant, codes);
  addIdentityEndpoints(router, plant, tokens, codes);
  const canPermitOffset = options.canPermitOffset ?? CAN_PERMIT_OFFSETS[0]!;
  if (!CAN_PERMIT_OFFSETS.includes(canPermitOffset)) {
    throw new Error(`canPermitOffset ${canPermitOffset} would make ids ambiguous: ${CAN_PERMIT_OFFSETS.join(', ')}`);
  }
  const permissionRoom = { plant, book: permissions, visibility, canPermitOffset };
  addPermissionEndpoints(router, permissionRoom);
  addOwnerEndpoints(router, permissionRoom, rooms.owners);
  addMembershipEndpoints(router, plant);
  addLabelEndpoints(router, plant, permissions, rooms.labels);
  addApplicationEndpoints(router, plant, rooms.usage);
  addValuesEndpoints(router, {
    plant,
    book: permissions,
    ledger: rooms.values,
    arrival: rooms.arrival,
    clock,
    invalidValues: options.invalidValues ?? 'refuse',
    examine: (asset, posted) => {
      const refused = faults.refusalOf(asset, posted);
      if (refused) throw refusal(refused.status, `a value of ${refused.key} is refused`, 'values');
    },
  });
  addWebhookEndpoints(router, {
    book: rooms.webhookBook,
    engine: rooms.engine,
    makeSecret: makeToken,
    deliveriesUnder: options.deliveriesUnder ?? 'events',
  });
  return router;
}
