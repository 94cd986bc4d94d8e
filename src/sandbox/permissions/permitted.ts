import type { PermissionType } from '../../contract/permissions.ts';
import { notFound, refusal } from '../http/refusal.ts';
import type { SiteModel } from '../site/site-model.ts';
import type { PermitableRef } from './inheritance.ts';
import type { PermissionRegistry } from './permission-registry.ts';

/**
 * Refuses who lacks one type of permission on an object. The types are disjoint (platform 2.2): the one that is asked for is
 * enough, also without `can_read`. Who lacks it is told so (403) where he sees the object, and else nothing of it (404).
 */
export function mustMay(
  registry: PermissionRegistry,
  site: SiteModel,
  user: number,
  type: PermissionType,
  object: PermitableRef,
): void {
  if (!site.hasPermitable(object.type, object.id)) throw notFound(`${object.type} ${object.id}`);
  if (registry.may(user, type, object)) return;
  if (!registry.may(user, 'can_read', object)) throw notFound(`${object.type} ${object.id}`);
  throw refusal(403, `the user has no ${type} on this ${object.type}`);
}
