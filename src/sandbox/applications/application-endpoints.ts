import { type Answer, type Call, idParam } from '../http/call.ts';
import { page } from '../http/paging.ts';
import { notFound } from '../http/refusal.ts';
import type { Router } from '../http/router.ts';
import type { Usage } from '../http/usage.ts';
import type { Application } from '../site/records.ts';
import type { SiteModel } from '../site/site-model.ts';

/** Client applications (platform 4.5) and the subscription's quota (platform 10.3). A caller knows the one its token was issued to. */
export function addApplicationEndpoints(router: Router, site: SiteModel, usage: Usage): void {
  router.add('GET', '/v1/client_applications', (call) => {
    const name = call.query.get('name');
    const own = site.all('client_applications').filter((one) => one.id === call.caller.application);
    const { items, pagination } = page(call, name === null ? own : own.filter((one) => one.name === name));
    const story =
      name === null ? 'client applications are looked at' : `the application ${name.slice(0, 80)} is looked for`;
    return { status: 200, body: { client_applications: items.map(shown), pagination }, story };
  });
  router.add('GET', '/v1/client_applications/current', (call) => {
    const application = own(call, site);
    return { status: 200, body: shown(application), story: `its application is ${application.name}` };
  });
  router.add('GET', '/v1/client_applications/:id', (call) => {
    const id = idParam(call, 'id');
    const application = own(call, site);
    if (application.id !== id) throw notFound(`client application ${id}`);
    return { status: 200, body: shown(application), story: `the application ${application.name} is looked at` };
  });
  router.add('GET', '/v1/api_subscriptions', (call) => subscriptions(call, site, usage));
}

function own(call: Call, site: SiteModel): Application {
  const application = site.get('client_applications', call.caller.application);
  if (!application) throw notFound('the client application');
  return application;
}

function shown(application: Application) {
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
  const story = `the quota is looked at: ${subscription.api_calls_used} calls are used`;
  return { status: 200, body: { api_subscriptions: items, pagination }, story };
}
