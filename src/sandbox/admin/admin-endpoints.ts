import { PERMISSION_TYPES, PERMITABLE_TYPES, type PermissionType } from '../../contract/permissions.ts';
import { type Answer, type Call, idParam, isObject } from '../http/call.ts';
import { notFound, refusal } from '../http/refusal.ts';
import type { Router } from '../http/router.ts';
import type { PermitableRef } from '../permissions/inheritance.ts';
import { problemOf } from '../site/record-check.ts';
import { type NewThreshold, wholeThreshold } from '../values/threshold-watch.ts';
import { readTimestamp } from '../values/values-body.ts';
import { adminBody } from './admin-body.ts';
import type { Stage } from './stage.ts';

const DONE: Answer = { status: 204 };
const ok = (body: unknown): Answer => ({ status: 200, body });

/** `/sandbox/…`: behind the scenes, by HTTP. No part of the platform and without tokens; docs/sandbox.md lists it. */
export function addAdminEndpoints(router: Router, stage: Stage): void {
  const add = (method: string, path: string, handle: (call: Call) => Answer | Promise<Answer>) =>
    router.add(method, `/sandbox/${path}`, handle, { auth: 'none' });

  add('GET', 'status', () => ok(status(stage)));
  add('POST', 'clock', (call) => moveClock(call, stage));

  add('GET', 'values', (call) => ok(stage.values.counts(number(call, 'asset'), call.query.get('key') ?? undefined)));
  add('GET', 'values/list', (call) => ok(listValues(call, stage)));
  add('GET', 'values/series', () => ok({ series: stage.values.series() }));
  add('POST', 'values/compare', (call) => ok(compareValues(call, stage)));
  add('DELETE', 'values', () => {
    stage.values.clear();
    return DONE;
  });

  add('POST', 'permissions', (call) => {
    const { on, user, types } = permissionBody(call);
    stage.grantPermission(on, { ...user, ...types });
    return DONE;
  });
  add('DELETE', 'permissions', (call) => {
    const { on, user, types, direct } = permissionBody(call);
    stage.takePermission(on, { ...user, ...types, direct });
    return DONE;
  });

  add('GET', 'thresholds', () => ok({ thresholds: stage.site.all('thresholds') }));
  add('POST', 'thresholds', (call) => ({ status: 201, body: { id: setThreshold(call, stage) } }));
  add('DELETE', 'thresholds/:id', (call) => {
    if (!stage.removeThreshold(idParam(call, 'id'))) throw notFound('the threshold');
    return DONE;
  });

  add('GET', 'tokens', () => ok({ tokens: stage.tokens.list(), ...stage.tokens.counts() }));
  add('PATCH', 'tokens', (call) => {
    stage.tokens.configure(tokenOptions(adminBody(call, 'tokens')));
    return DONE;
  });
  add('POST', 'tokens/expire', (call) => {
    const andRefresh = adminBody(call, 'tokens/expire').refresh === true;
    stage.tokens.expireAll(andRefresh);
    stage.report(`every access token${andRefresh ? ' and refresh token' : ''} expires`);
    return DONE;
  });
  add('POST', 'tokens/revoke', () => {
    stage.tokens.revokeAll();
    stage.report('every token is revoked');
    return DONE;
  });

  add('GET', 'inheritance', () =>
    ok({ rules: stage.inheritance.map(({ from, to, because }) => ({ from, to, because })) }),
  );
  add('GET', 'webhooks', () => ok({ webhooks: stage.webhooks() }));
  add('GET', 'notices', (call) => ok({ notices: noticesOf(stage, call.query.get('contact')) }));
  add('POST', 'quota/reset', (call) => resetQuota(call, stage));
  add('GET', 'deliveries', (call) => ok({ deliveries: stage.deliveries(number(call, 'webhook')) }));
  add('POST', 'deliveries/resend', (call) => {
    const { ids } = adminBody(call, 'deliveries/resend');
    if (!Array.isArray(ids) || !ids.every(Number.isSafeInteger)) throw refusal(400, 'is no list of ids', 'ids');
    return ok({ started: stage.resend(ids) });
  });
}

function status(stage: Stage) {
  return {
    url: stage.url,
    time: new Date(stage.clock.wallMs()).toISOString(),
    speed: stage.clock.speed,
    outage: stage.outage ?? null,
    values: stage.values.counts(),
    valuesComplete: stage.values.complete,
    tokens: stage.tokens.counts(),
    webhooks: stage.webhooks().length,
    deliveries: deliveryCounts(stage),
    notices: stage.notices.length,
    requests: stage.requests.total,
  };
}

/** How many deliveries there are in each state (platform 10.3). */
function deliveryCounts(stage: Stage) {
  const counts = { pending: 0, delivered: 0, cancelled: 0, failed: 0 };
  for (const { status } of stage.deliveries()) counts[status]++;
  return counts;
}

function moveClock(call: Call, stage: Stage): Answer {
  const { advanceMs, speed, to } = adminBody(call, 'clock');
  const toMs = to === undefined ? undefined : readTimestamp(to);
  if (to !== undefined && toMs === undefined) throw refusal(400, 'is no ISO 8601 time', 'to');
  if (toMs !== undefined && toMs < stage.clock.wallMs()) {
    throw refusal(400, 'lies behind: the clock does not go back, start with --now', 'to');
  }
  if (speed !== undefined && !(typeof speed === 'number' && speed > 0))
    throw refusal(400, 'is no number over 0', 'speed');
  if (advanceMs !== undefined && !(typeof advanceMs === 'number' && advanceMs >= 0)) {
    throw refusal(400, 'is no number of milliseconds', 'advanceMs');
  }
  if (speed !== undefined) {
    stage.clock.speed = speed;
    stage.report(`the clock runs ${speed} times as fast`);
  }
  if (advanceMs !== undefined) {
    stage.clock.advance(advanceMs);
    stage.report(`the clock moves on by ${Math.round(advanceMs / 1000)} s`);
  }
  if (toMs !== undefined) {
    stage.clock.advance(toMs - stage.clock.wallMs());
    stage.report(`the clock moves on to ${new Date(toMs).toISOString()}`);
  }
  return ok(status(stage));
}

/** What contacts were sent (platform 3.2), of one address where it is named. */
function noticesOf(stage: Stage, contact: string | null) {
  return stage.notices.filter((notice) => contact === null || notice.contact === contact);
}

/** A new period of the subscription's quota (platform 6.1): nothing of it is used. */
function resetQuota(call: Call, stage: Stage): Answer {
  const { application } = adminBody(call, 'quota/reset');
  if (application !== undefined && !stage.site.get('client_applications', Number(application))) {
    throw notFound('the client application');
  }
  stage.usage.reset(application === undefined ? undefined : Number(application));
  stage.report('the quota begins anew');
  return DONE;
}

function listValues(call: Call, stage: Stage) {
  const asset = number(call, 'asset');
  const key = call.query.get('key');
  if (asset === undefined || key === null) throw refusal(400, 'asset and key are needed');
  return { complete: stage.values.complete, values: stage.values.list(asset, key) };
}

function compareValues(call: Call, stage: Stage) {
  const { asset, key, sent } = adminBody(call, 'values/compare');
  if (typeof asset !== 'number' || typeof key !== 'string' || !Array.isArray(sent)) {
    throw refusal(400, 'asset, key and sent (a list of {timestampMs or timestamp, value}) are needed');
  }
  const points = sent.map((one: { timestampMs?: number; timestamp?: string; value?: number }) => ({
    timestampMs: one.timestampMs ?? readTimestamp(one.timestamp) ?? Number.NaN,
    ...(one.value === undefined ? {} : { value: one.value }),
  }));
  return stage.values.compare(asset, key, points);
}

function permissionBody(call: Call) {
  const body = adminBody(call, 'permissions');
  const { on, user, types } = body;
  if (!isObject(on) || !(PERMITABLE_TYPES as readonly unknown[]).includes(on.type) || typeof on.id !== 'number') {
    throw refusal(400, `is not {"type", "id"} with a type of ${PERMITABLE_TYPES.join(', ')}`, 'on');
  }
  if (types !== undefined && !isTypes(types))
    throw refusal(400, `has types of ${PERMISSION_TYPES.join(', ')}`, 'types');
  return {
    on: { type: on.type, id: on.id } as PermitableRef,
    user: typeof user === 'string' || typeof user === 'number' ? { user } : {},
    types: types === undefined ? {} : { types },
    direct: body.direct === true,
  };
}

function isTypes(value: unknown): value is PermissionType[] {
  return Array.isArray(value) && value.every((type) => PERMISSION_TYPES.includes(type));
}

function setThreshold(call: Call, stage: Stage): number {
  const body = adminBody(call, 'thresholds');
  const { id, instrumentation } = body;
  if (id !== undefined && !Number.isSafeInteger(id)) throw refusal(400, 'is no id', 'id');
  if (instrumentation !== undefined && !Number.isSafeInteger(instrumentation)) {
    throw refusal(400, 'is no id', 'instrumentation');
  }
  const threshold = wholeThreshold(body as unknown as NewThreshold, () => stage.site.newId());
  const problem = problemOf('thresholds', threshold, stage.site);
  if (problem) throw refusal(400, problem.message, problem.member);
  return stage.setThreshold(threshold);
}

function tokenOptions(body: Record<string, unknown>) {
  const options: { accessTokenLifeS?: number; refreshTokenLifeS?: number; rotateRefreshTokens?: boolean } = {};
  for (const name of ['accessTokenLifeS', 'refreshTokenLifeS'] as const) {
    const value = body[name];
    if (value !== undefined && !(typeof value === 'number' && value > 0))
      throw refusal(400, 'is no number over 0', name);
  }
  if (body.rotateRefreshTokens !== undefined && typeof body.rotateRefreshTokens !== 'boolean') {
    throw refusal(400, 'is neither true nor false', 'rotateRefreshTokens');
  }
  if (typeof body.accessTokenLifeS === 'number') options.accessTokenLifeS = body.accessTokenLifeS;
  if (typeof body.refreshTokenLifeS === 'number') options.refreshTokenLifeS = body.refreshTokenLifeS;
  if (typeof body.rotateRefreshTokens === 'boolean') options.rotateRefreshTokens = body.rotateRefreshTokens;
  return options;
}

function number(call: Call, name: string): number | undefined {
  const text = call.query.get(name);
  if (text === null) return undefined;
  const value = Number(text);
  if (!Number.isInteger(value)) throw refusal(400, 'is no whole number', name);
  return value;
}
