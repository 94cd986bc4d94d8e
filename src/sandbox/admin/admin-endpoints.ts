import { PERMISSION_TYPES, PERMITABLE_TYPES, type PermissionType } from '../../contract/permissions.ts';
import type { NewFault, Poison } from '../faults.ts';
import { type Answer, type Call, idParam, isObject, objectBody } from '../http/call.ts';
import { notFound, refusal } from '../http/refusal.ts';
import type { Router } from '../http/router.ts';
import type { PermitableRef } from '../permissions/inheritance.ts';
import type { Sandbox } from '../sandbox.ts';
import { readTimestamp } from '../values/values-body.ts';

const DONE: Answer = { status: 204 };
const ok = (body: unknown): Answer => ({ status: 200, body });

/** `/sandbox/…`: behind the scenes, by HTTP. No part of the platform and without tokens; docs/sandbox.md lists it. */
export function addAdminEndpoints(router: Router, sandbox: Sandbox): void {
  const add = (method: string, path: string, handle: (call: Call) => Answer | Promise<Answer>) =>
    router.add(method, `/sandbox/${path}`, handle, { auth: 'none' });

  add('GET', 'status', () => ok(status(sandbox)));
  add('POST', 'clock', (call) => moveClock(call, sandbox));

  add('GET', 'values', (call) => ok(sandbox.values.counts(number(call, 'asset'), call.query.get('key') ?? undefined)));
  add('GET', 'values/list', (call) => ok(listValues(call, sandbox)));
  add('GET', 'values/series', () => ok({ series: sandbox.values.series() }));
  add('POST', 'values/compare', (call) => ok(compareValues(call, sandbox)));
  add('DELETE', 'values', () => {
    sandbox.values.clear();
    return DONE;
  });

  add('POST', 'permissions', (call) => {
    const { on, user, types } = permissionBody(call);
    sandbox.grantPermission(on, { ...user, ...types });
    return DONE;
  });
  add('DELETE', 'permissions', (call) => {
    const { on, user, types, direct } = permissionBody(call);
    sandbox.takePermission(on, { ...user, ...types, direct });
    return DONE;
  });

  add('GET', 'thresholds', () => ok({ thresholds: sandbox.plant.all('thresholds') }));
  add('POST', 'thresholds', (call) => ({ status: 201, body: { id: setThreshold(call, sandbox) } }));
  add('DELETE', 'thresholds/:id', (call) => {
    if (!sandbox.removeThreshold(idParam(call, 'id'))) throw notFound('the threshold');
    return DONE;
  });

  add('GET', 'tokens', () => ok({ tokens: sandbox.tokens.list(), ...sandbox.tokens.counts() }));
  add('PATCH', 'tokens', (call) => {
    sandbox.tokens.configure(tokenOptions(objectBody(call)));
    return DONE;
  });
  add('POST', 'tokens/expire', (call) => {
    sandbox.tokens.expireAll(call.raw.length > 0 && objectBody(call).refresh === true);
    return DONE;
  });
  add('POST', 'tokens/revoke', () => {
    sandbox.tokens.revokeAll();
    return DONE;
  });

  add('GET', 'webhooks', () => ok({ webhooks: sandbox.webhooks(), notes: sandbox.notes }));
  add('GET', 'deliveries', (call) => ok({ deliveries: sandbox.deliveries(number(call, 'webhook')) }));
  add('GET', 'requests', () => ok({ total: sandbox.requests.total, requests: sandbox.requests.list() }));
  add('DELETE', 'requests', () => {
    sandbox.requests.clear();
    return DONE;
  });

  add('POST', 'offline', (call) => goOffline(call, sandbox));
  add('POST', 'online', async () => {
    await sandbox.goOnline();
    return DONE;
  });
  add('GET', 'faults', () => ok({ faults: sandbox.faults.list(), poisons: sandbox.faults.poisons() }));
  add('POST', 'faults', (call) => ({ status: 201, body: { id: sandbox.faults.add(readFault(objectBody(call))) } }));
  add('POST', 'poison', (call) => {
    sandbox.faults.poison(readFault(objectBody(call)) as Poison);
    return DONE;
  });
  add('DELETE', 'faults', () => {
    sandbox.faults.clear();
    return DONE;
  });
  add('DELETE', 'faults/:id', (call) => {
    if (!sandbox.faults.remove(idParam(call, 'id'))) throw notFound('the fault');
    return DONE;
  });
  add('PATCH', 'limits', (call) => {
    Object.assign(sandbox.usage.limits, objectBody(call));
    return DONE;
  });
}

function status(sandbox: Sandbox) {
  return {
    url: sandbox.url,
    time: new Date(sandbox.clock.wallMs()).toISOString(),
    speed: sandbox.clock.speed,
    outage: sandbox.outage ?? null,
    values: sandbox.values.counts(),
    valuesComplete: sandbox.values.complete,
    tokens: sandbox.tokens.counts(),
    webhooks: sandbox.webhooks().length,
    requests: sandbox.requests.total,
  };
}

function moveClock(call: Call, sandbox: Sandbox): Answer {
  const { advanceMs, speed } = objectBody(call);
  if (typeof speed === 'number' && speed > 0) sandbox.clock.speed = speed;
  if (typeof advanceMs === 'number' && advanceMs >= 0) sandbox.clock.advance(advanceMs);
  return ok(status(sandbox));
}

function listValues(call: Call, sandbox: Sandbox) {
  const asset = number(call, 'asset');
  const key = call.query.get('key');
  if (asset === undefined || key === null) throw refusal(400, 'asset and key are needed');
  return { complete: sandbox.values.complete, values: sandbox.values.list(asset, key) };
}

function compareValues(call: Call, sandbox: Sandbox) {
  const { asset, key, sent } = objectBody(call);
  if (typeof asset !== 'number' || typeof key !== 'string' || !Array.isArray(sent)) {
    throw refusal(400, 'asset, key and sent (a list of {timestampMs or timestamp, value}) are needed');
  }
  const points = sent.map((one: { timestampMs?: number; timestamp?: string; value?: number }) => ({
    timestampMs: one.timestampMs ?? readTimestamp(one.timestamp) ?? Number.NaN,
    ...(one.value === undefined ? {} : { value: one.value }),
  }));
  return sandbox.values.compare(asset, key, points);
}

function permissionBody(call: Call) {
  const body = objectBody(call);
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

function setThreshold(call: Call, sandbox: Sandbox): number {
  const body = objectBody(call);
  if (!['high', 'low', 'deviation'].includes(body.type as string))
    throw refusal(400, 'is high, low or deviation', 'type');
  if (typeof body.value !== 'number') throw refusal(400, 'is not a number', 'value');
  return sandbox.setThreshold(body as unknown as Parameters<Sandbox['setThreshold']>[0]);
}

function tokenOptions(body: Record<string, unknown>) {
  const options: { accessTokenLifeS?: number; refreshTokenLifeS?: number; rotateRefreshTokens?: boolean } = {};
  if (typeof body.accessTokenLifeS === 'number') options.accessTokenLifeS = body.accessTokenLifeS;
  if (typeof body.refreshTokenLifeS === 'number') options.refreshTokenLifeS = body.refreshTokenLifeS;
  if (typeof body.rotateRefreshTokens === 'boolean') options.rotateRefreshTokens = body.rotateRefreshTokens;
  return options;
}

/** `forMs`: real milliseconds after which the platform comes back by itself; needed with `refuse` where there is no second address. */
function goOffline(call: Call, sandbox: Sandbox): Answer {
  const body = call.raw.length === 0 ? {} : objectBody(call);
  const mode = body.mode ?? 'refuse';
  const retryAfter = body.retryAfter as number | string | undefined;
  const forMs = typeof body.forMs === 'number' ? body.forMs : undefined;
  if (mode === 'refuse' && forMs === undefined && sandbox.adminUrl === sandbox.url) {
    throw refusal(400, 'is needed: with its socket closed this address cannot be told to come back', 'forMs');
  }
  if (mode !== 'refuse' && mode !== 'drop' && !isStatus(mode)) {
    throw refusal(400, 'is refuse, drop or a status', 'mode');
  }
  const how = isStatus(mode) ? { status: mode, ...(retryAfter === undefined ? {} : { retryAfter }) } : mode;
  // After this answer has left, for `refuse` breaks the connection that carries it.
  sandbox.later(50, () => sandbox.goOffline(how));
  if (forMs !== undefined) sandbox.later(50 + forMs, () => sandbox.goOnline());
  return { status: 202 };
}

/** What would only fail later, inside somebody else's request, is refused here. */
function readFault(body: Record<string, unknown>): NewFault {
  const { status, latencyMs, drop } = body;
  if (status !== undefined && !isStatus(status)) throw refusal(400, 'is a status from 200 to 599', 'status');
  if (latencyMs !== undefined && !(typeof latencyMs === 'number' && latencyMs >= 0)) {
    throw refusal(400, 'is no number of milliseconds', 'latencyMs');
  }
  if (drop !== undefined && drop !== 'before' && drop !== 'after') throw refusal(400, 'is before or after', 'drop');
  return body as NewFault;
}

function isStatus(value: unknown): value is number {
  return Number.isInteger(value) && (value as number) >= 200 && (value as number) <= 599;
}

function number(call: Call, name: string): number | undefined {
  const text = call.query.get(name);
  if (text === null) return undefined;
  const value = Number(text);
  if (!Number.isInteger(value)) throw refusal(400, 'is no whole number', name);
  return value;
}
