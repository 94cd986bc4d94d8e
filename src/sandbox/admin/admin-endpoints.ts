import { type Answer, type Call, idParam, idQuery, isObject, readTimestamp } from '../http/call.ts';
import { adminBody, required } from '../http/forms.ts';
import { notFound, refusal } from '../http/refusal.ts';
import type { Router } from '../http/router.ts';
import { problemOf } from '../site/record-check.ts';
import type { Stage } from '../stage.ts';
import { wholeThreshold } from '../values/threshold-watch.ts';

/** Adds an endpoint to the admin API. It responds 200 with a body, 201 with a new ID, or 204 without a body. */
export function addAdmin(router: Router, endpoint: string, handle: (call: Call) => unknown): void {
  const [method = '', path = ''] = endpoint.split(' ');
  const answer = async (call: Call): Promise<Answer> => {
    const body = (await handle(call)) as object | undefined;
    return body === undefined ? { status: 204 } : { status: method === 'POST' && 'id' in body ? 201 : 200, body };
  };
  router.add(method, `/sandbox/${path}`, answer, { auth: 'none' });
}

/** Adds the admin API (`/sandbox/…`, docs/reference/sandbox.md). It is not part of the platform and requires no tokens. */
export function addAdminEndpoints(router: Router, stage: Stage): void {
  const add = (endpoint: string, handle: Parameters<typeof addAdmin>[2]) => addAdmin(router, endpoint, handle);

  add('GET status', () => statusOf(stage));
  add('POST clock', (call) => moveClock(call, stage));
  add('GET values', (call) => stage.values.counts(idQuery(call, 'asset'), call.query.get('key') ?? undefined));
  add('POST values/compare', (call) => {
    const { asset, key, sent } = adminBody(call, { asset: 'id', key: 'text', sent: 'list' });
    const points = required({ sent }, 'sent').map((point) => {
      if (!isObject(point) || typeof point.timestampMs !== 'number') {
        throw refusal(400, 'must be a list of {"timestampMs", "value"}', 'sent');
      }
      const { timestampMs, value } = point;
      return { timestampMs, ...(typeof value === 'number' ? { value } : {}) };
    });
    return stage.values.compare(required({ asset }, 'asset'), required({ key }, 'key'), points);
  });

  add('POST permissions', (call) => {
    const { on, ...options } = permissionBody(call);
    stage.grantPermission(on, options);
  });
  add('DELETE permissions', (call) => {
    const { on, ...options } = permissionBody(call);
    stage.revokePermission(on, options);
  });

  add('POST thresholds', (call) => ({ id: setThreshold(call, stage) }));
  add('DELETE thresholds/:id', (call) => {
    if (!stage.removeThreshold(idParam(call, 'id'))) throw notFound('the threshold');
  });

  add('POST tokens/expire', (call) => {
    const { refresh = false } = adminBody(call, { refresh: 'flag' });
    stage.tokens.expireAll(refresh);
    stage.report(`all access tokens${refresh ? ' and refresh tokens' : ''} expired`);
  });
  add('POST tokens/revoke', () => {
    stage.tokens.revokeAll();
    stage.report('all tokens revoked');
  });

  add('GET deliveries', () => ({ deliveries: stage.deliveries() }));
  add('GET notices', ({ query }) => {
    const contact = query.get('contact');
    return { notices: stage.notices.filter((notice) => contact === null || notice.contact === contact) };
  });
  add('POST quota/reset', (call) => {
    const { application } = adminBody(call, { application: 'id' });
    if (application !== undefined) stage.site.found('client_applications', application);
    stage.usage.reset(application);
    stage.report('quota reset');
  });
  add('POST deliveries/resend', (call) => ({
    started: stage.resend(required(adminBody(call, { ids: 'ids' }), 'ids')),
  }));
}

function statusOf(stage: Stage) {
  const deliveries = { pending: 0, delivered: 0, cancelled: 0, failed: 0 };
  for (const { status } of stage.deliveries()) deliveries[status]++;
  return {
    url: stage.url,
    time: new Date(stage.clock.wallMs()).toISOString(),
    speed: stage.clock.speed,
    outage: stage.outage ?? null,
    values: stage.values.counts(),
    tokens: stage.tokens.counts(),
    webhooks: stage.webhooks().length,
    deliveries,
    notices: stage.notices.length,
    requests: stage.requests.total,
  };
}

function moveClock(call: Call, stage: Stage) {
  const { advanceMs, speed, to } = adminBody(call, { advanceMs: 'number', speed: 'positive', to: 'time' });
  const toMs = readTimestamp(to);
  if (toMs !== undefined && toMs < stage.clock.wallMs()) {
    throw refusal(400, 'must not be in the past: the clock cannot go back, restart with --now', 'to');
  }
  if (advanceMs !== undefined && advanceMs < 0) throw refusal(400, 'must be a number of milliseconds', 'advanceMs');
  if (speed !== undefined) {
    stage.clock.speed = speed;
    stage.report(`clock speed set to ${speed}`);
  }
  if (advanceMs !== undefined) {
    stage.clock.advance(advanceMs);
    stage.report(`clock advanced by ${Math.round(advanceMs / 1000)} s`);
  }
  if (toMs !== undefined) {
    stage.clock.advance(toMs - stage.clock.wallMs());
    stage.report(`clock advanced to ${new Date(toMs).toISOString()}`);
  }
  return statusOf(stage);
}

function permissionBody(call: Call) {
  const { on, ...options } = adminBody(call, {
    on: 'permitable',
    user: 'textOrNumber',
    types: 'permissionTypes',
    ...(call.method === 'DELETE' ? ({ direct: 'flag' } as const) : {}),
  });
  return { on: required({ on }, 'on'), ...options };
}

function setThreshold(call: Call, stage: Stage): number {
  const body = adminBody(call, {
    id: 'id',
    type: 'any',
    value: 'any',
    instrumentation: 'id',
    thresholdable_type: 'any',
    thresholdable_id: 'any',
    assets: 'any',
    key: 'any',
    unit: 'any',
    name: 'any',
    tolerance: 'any',
  });
  // The record check below covers all threshold members.
  const threshold = wholeThreshold(body as Parameters<Stage['setThreshold']>[0], () => stage.site.newId());
  const problem = problemOf('thresholds', threshold, stage.site);
  if (problem) throw refusal(400, problem.message, problem.member);
  return stage.setThreshold(threshold);
}
