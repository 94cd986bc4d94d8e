import type { Router } from '../http/router.ts';
import { addPageEndpoints } from '../live/page-endpoints.ts';
import type { Owner } from '../site/records.ts';
import { addAdminEndpoints } from './admin-endpoints.ts';
import { addCauseEndpoints } from './cause-endpoints.ts';
import { addChangeEndpoints } from './change-endpoints.ts';
import { addExamEndpoints } from './exam-endpoints.ts';
import { addFaultEndpoints } from './fault-endpoints.ts';
import { addRequestEndpoints } from './request-endpoints.ts';
import type { Stage } from './stage.ts';
import { addWebhookFaultEndpoints } from './webhook-fault-endpoints.ts';

/** All of `/sandbox/…`. */
export function addBehindTheScenes(router: Router, stage: Stage, owners: readonly Owner[]): void {
  addAdminEndpoints(router, stage);
  addFaultEndpoints(router, stage);
  addWebhookFaultEndpoints(router, stage);
  addRequestEndpoints(router, stage);
  addExamEndpoints(router, stage);
  addChangeEndpoints(router, stage.site, stage.changes, owners);
  addCauseEndpoints(router, stage);
  addPageEndpoints(router, stage);
}
