import type { NewFault, Poison } from '../faults.ts';
import { type Answer, type Call, idParam } from '../http/call.ts';
import { notFound, refusal } from '../http/refusal.ts';
import type { Router } from '../http/router.ts';
import { adminBody } from './admin-body.ts';
import type { Stage } from './stage.ts';

const DONE: Answer = { status: 204 };
const ok = (body: unknown): Answer => ({ status: 200, body });

/** Faults on demand by HTTP: the platform away, answers that fail, values that are refused, rates. */
export function addFaultEndpoints(router: Router, stage: Stage): void {
  const add = (method: string, path: string, handle: (call: Call) => Answer | Promise<Answer>) =>
    router.add(method, `/sandbox/${path}`, handle, { auth: 'none' });

  add('POST', 'offline', (call) => goOffline(call, stage));
  add('POST', 'online', async () => {
    await stage.goOnline();
    return DONE;
  });
  add('GET', 'faults', () => ok({ faults: stage.faults.list(), poisons: stage.faults.poisons() }));
  add('POST', 'faults', (call) => {
    const fault = readFault(adminBody(call, 'faults'));
    stage.report(`a fault is set: ${JSON.stringify(fault).slice(0, 120)}`);
    return { status: 201, body: { id: stage.faults.add(fault) } };
  });
  add('POST', 'poison', (call) => {
    stage.faults.poison(readFault(adminBody(call, 'poison')) as Poison);
    return DONE;
  });
  add('DELETE', 'faults', () => {
    stage.faults.clear();
    stage.webhookFaults.clear();
    stage.report('all faults are gone');
    return DONE;
  });
  add('DELETE', 'faults/:id', (call) => {
    if (!stage.faults.remove(idParam(call, 'id'))) throw notFound('the fault');
    return DONE;
  });
  add('PATCH', 'limits', (call) => {
    Object.assign(stage.usage.limits, readLimits(adminBody(call, 'limits')));
    return DONE;
  });
}

/** `forMs`: real milliseconds after which the platform comes back by itself; needed with `refuse` where there is no second address. */
function goOffline(call: Call, stage: Stage): Answer {
  const body = adminBody(call, 'offline');
  const mode = body.mode ?? 'refuse';
  const retryAfter = body.retryAfter as number | string | undefined;
  const forMs = typeof body.forMs === 'number' ? body.forMs : undefined;
  if (mode === 'refuse' && forMs === undefined && stage.adminUrl === stage.url) {
    throw refusal(400, 'is needed: with its socket closed this address cannot be told to come back', 'forMs');
  }
  if (mode !== 'refuse' && mode !== 'drop' && !isStatus(mode)) {
    throw refusal(400, 'is refuse, drop or a status', 'mode');
  }
  const how = isStatus(mode) ? { status: mode, ...(retryAfter === undefined ? {} : { retryAfter }) } : mode;
  // After this answer has left, for `refuse` breaks the connection that carries it.
  stage.later(50, () => stage.goOffline(how));
  if (forMs !== undefined) stage.later(50 + forMs, () => stage.goOnline());
  return { status: 202 };
}

/** Members of faults and poisons, and what they may be. `body` may be anything. */
const FAULT_MEMBERS: Readonly<Record<string, readonly string[]>> = {
  method: ['string'],
  path: ['string'],
  asset: ['number'],
  nth: ['number'],
  every: ['number'],
  times: ['number'],
  status: ['number'],
  contentType: ['string'],
  retryAfter: ['number', 'string'],
  latencyMs: ['number'],
  drop: ['string'],
  state: ['string'],
  key: ['string'],
  value: ['number'],
  timestampMs: ['number'],
};

/** What would only fail later, inside somebody else's request, is refused here. */
function readFault(body: Record<string, unknown>): NewFault {
  const { status, latencyMs, drop, state } = body;
  if (status !== undefined && !isStatus(status)) throw refusal(400, 'is a status from 200 to 599', 'status');
  if (latencyMs !== undefined && !(typeof latencyMs === 'number' && latencyMs >= 0)) {
    throw refusal(400, 'is no number of milliseconds', 'latencyMs');
  }
  for (const [name, value] of Object.entries(body)) {
    const types = Object.hasOwn(FAULT_MEMBERS, name) ? FAULT_MEMBERS[name] : undefined;
    if (types !== undefined && !types.includes(typeof value)) throw refusal(400, `is no ${types.join(' or ')}`, name);
  }
  for (const name of ['nth', 'every', 'times']) {
    if (body[name] !== undefined && !(Number.isInteger(body[name]) && (body[name] as number) > 0)) {
      throw refusal(400, 'is no whole number over 0', name);
    }
  }
  if (drop !== undefined && drop !== 'before' && drop !== 'after') throw refusal(400, 'is before or after', 'drop');
  if (state !== undefined && state !== 'foreign') throw refusal(400, 'is foreign', 'state');
  return body as NewFault;
}

function isStatus(value: unknown): value is number {
  return Number.isInteger(value) && (value as number) >= 200 && (value as number) <= 599;
}

function readLimits(body: Record<string, unknown>) {
  for (const [name, value] of Object.entries(body)) {
    const fits =
      name === 'retryAfter'
        ? typeof value === 'boolean'
        : ['perUser', 'perApiKey', 'perAddress'].includes(name) && Number.isInteger(value) && (value as number) >= 0;
    if (!fits)
      throw refusal(400, 'is no limit: perUser, perApiKey, perAddress (numbers), retryAfter', name.slice(0, 60));
  }
  return body;
}
