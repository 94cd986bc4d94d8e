import { type Answer, type Call, idParam } from '../http/call.ts';
import { notFound } from '../http/refusal.ts';
import type { Router } from '../http/router.ts';
import type { PermissionRegistry } from '../permissions/permission-registry.ts';
import { mustMay } from '../permissions/permitted.ts';
import type { Kind } from './records.ts';
import type { SiteModel } from './site-model.ts';

/**
 * The objects that event contents refer to answer under their `href` (platform 6.2), to who may read them. Their fields are
 * not shown (platform 2.7): they have the members that the contents of 6.3 give them. Units are everybody's.
 */
export function addObjectEndpoints(router: Router, site: SiteModel, registry: PermissionRegistry): void {
  const add = (kind: 'assets' | 'instrumentations' | 'nodes', type: 'Asset' | 'Instrumentation' | 'Node') =>
    router.add('GET', `/v1/${kind}/:id`, (call) => {
      const id = idParam(call, 'id');
      mustMay(registry, site, call.caller.user, 'can_read', { type, id });
      return found(call, site, kind, id);
    });
  add('assets', 'Asset');
  add('instrumentations', 'Instrumentation');
  add('nodes', 'Node');
  router.add('GET', '/v1/units/:id', (call) => found(call, site, 'units', idParam(call, 'id')));
}

function found(call: Call, site: SiteModel, kind: Kind, id: number): Answer {
  const body = shown(site, kind, id);
  if (body === undefined) throw notFound(`${kind} ${id}`);
  return { status: 200, body: { ...site.reference(kind, id), ...body }, story: `${call.path.slice(4)} is read` };
}

function shown(site: SiteModel, kind: Kind, id: number): Record<string, unknown> | undefined {
  if (kind === 'assets') {
    const asset = site.get('assets', id);
    if (!asset) return undefined;
    const status = asset.status === undefined ? {} : { status: site.reference('asset_statuses', asset.status) };
    return { serial_number: asset.serial_number, ...status };
  }
  if (kind === 'instrumentations') return members(site.get('instrumentations', id), ['tag']);
  if (kind === 'nodes') return members(site.get('nodes', id), ['name', 'tag']);
  return members(site.get('units', id), ['code', 'symbol']);
}

function members(record: object | undefined, names: readonly string[]): Record<string, unknown> | undefined {
  if (record === undefined) return undefined;
  return Object.fromEntries(Object.entries(record).filter(([name]) => names.includes(name)));
}
