import { type Answer, type Call, idParam, page } from '../http/call.ts';
import { notFound } from '../http/refusal.ts';
import type { Router } from '../http/router.ts';
import type { Usage } from '../http/usage.ts';
import type { Stage } from '../stage.ts';
import type { Application, Kind } from './records.ts';
import type { SiteModel } from './site-model.ts';

/**
 * Adds `GET` endpoints for objects to which event contents refer by `href` (platform 6.2). The specification does not
 * show their fields (platform 2.7), so the responses contain the same members as event contents (platform 6.3). All
 * users can read units.
 */
export function addObjectEndpoints(router: Router, stage: Stage): void {
  const { site, permissions } = stage;
  const add = (kind: 'assets' | 'instrumentations' | 'nodes', type: 'Asset' | 'Instrumentation' | 'Node') =>
    router.add('GET', `/v1/${kind}/:id`, (call) => {
      const id = idParam(call, 'id');
      permissions.require(call.caller.user, 'can_read', { type, id });
      return found(call, site, kind, id);
    });
  add('assets', 'Asset');
  add('instrumentations', 'Instrumentation');
  add('nodes', 'Node');
  router.add('GET', '/v1/units/:id', (call) => found(call, site, 'units', idParam(call, 'id')));
  addApplicationEndpoints(router, stage);
}

function found(call: Call, site: SiteModel, kind: Kind, id: number): Answer {
  const body = shown(site, kind, id);
  if (body === undefined) throw notFound(`${kind} ${id}`);
  return { status: 200, body: { ...site.reference(kind, id), ...body }, story: `${call.path.slice(4)} read` };
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

/**
 * Adds the endpoints for client applications (platform 4.5) and the subscription's quota (platform 10.3). A caller can
 * see only the client application for which its token was issued.
 */
function addApplicationEndpoints(router: Router, { site, usage }: Stage): void {
  router.add('GET', '/v1/client_applications', (call) => {
    const name = call.query.get('name');
    const own = site.all('client_applications').filter((one) => one.id === call.caller.application);
    const { items, pagination } = page(call, name === null ? own : own.filter((one) => one.name === name));
    const story =
      name === null ? 'client applications listed' : `client applications with the name ${name.slice(0, 80)} listed`;
    return { status: 200, body: { client_applications: items.map(applicationContent), pagination }, story };
  });
  router.add('GET', '/v1/client_applications/current', (call) => {
    const application = own(call, site);
    return { status: 200, body: applicationContent(application), story: `client application ${application.name} read` };
  });
  router.add('GET', '/v1/client_applications/:id', (call) => {
    const id = idParam(call, 'id');
    const application = own(call, site);
    if (application.id !== id) throw notFound(`client application ${id}`);
    return { status: 200, body: applicationContent(application), story: `client application ${application.name} read` };
  });
  router.add('GET', '/v1/api_subscriptions', (call) => subscriptions(call, site, usage));
}

function own(call: Call, site: SiteModel): Application {
  const application = site.get('client_applications', call.caller.application);
  if (!application) throw notFound('the client application');
  return application;
}

function applicationContent(application: Application) {
  return { id: application.id, name: application.name };
}

function subscriptions(call: Call, site: SiteModel, usage: Usage): Answer {
  const application = own(call, site);
  const spent = usage.spent(application.id);
  const subscription = {
    id: application.id,
    api_call_quota: application.call_quota ?? 0,
    api_calls_used: spent.calls,
    ...(application.byte_quota ? { payload_quota: application.byte_quota, payload_used: spent.bytes } : {}),
    start_date: new Date(usage.startedMs).toISOString().slice(0, 10),
    status: application.active === false ? 'inactive' : 'active',
  };
  const { items, pagination } = page(call, [subscription]);
  const story = `quota read: ${subscription.api_calls_used} calls used`;
  return { status: 200, body: { api_subscriptions: items, pagination }, story };
}
