import { CAUSES, readEventRequest, triggerEvent } from '../causes/trigger.ts';
import { objectBody } from '../http/call.ts';
import type { Router } from '../http/router.ts';
import type { Stage } from './stage.ts';

/** `/sandbox/causes`: every event type of platform 6.3 by hand, in one request each. */
export function addCauseEndpoints(router: Router, stage: Stage): void {
  const none = { auth: 'none' } as const;
  router.add('GET', '/sandbox/causes', () => ({ status: 200, body: { causes: listed() } }), none);
  router.add(
    'POST',
    '/sandbox/causes/:type',
    (call) => {
      const request = call.raw.length === 0 ? {} : readEventRequest(objectBody(call));
      return { status: 200, body: triggerEvent(stage, call.params.type ?? '', request) };
    },
    none,
  );
}

function listed() {
  return Object.entries(CAUSES).map(([event_type, { does, object, to, takes }]) => ({
    event_type,
    does,
    object,
    ...(to === undefined ? {} : { to }),
    takes,
  }));
}
