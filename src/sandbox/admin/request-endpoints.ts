import { type Answer, type Call, idParam, isObject } from '../http/call.ts';
import { notFound, refusal } from '../http/refusal.ts';
import type { Router } from '../http/router.ts';
import { type Expectation, ExpectationError, exchangesOf, type RequestMatch } from '../requests/expectation.ts';
import { wholeRequest } from '../requests/whole-request.ts';
import { adminBody } from './admin-body.ts';
import type { Stage } from './stage.ts';

const DONE: Answer = { status: 204 };
const ok = (body: unknown): Answer => ({ status: 200, body });

/** Nobody waits longer for an expectation by HTTP: clients have patience of their own. */
const MAX_WITHIN_MS = 60_000;
const MAX_WAITING = 100;
const MAX_WHOLE = 1_000;

/** Adds the endpoints that list, show and await requests of clients. */
export function addRequestEndpoints(router: Router, stage: Stage): void {
  const add = (method: string, path: string, handle: (call: Call) => Answer | Promise<Answer>) =>
    router.add(method, `/sandbox/${path}`, handle, { auth: 'none' });

  add('GET', 'requests', (call) => list(call, stage));
  add('DELETE', 'requests', () => {
    stage.requests.clear();
    return DONE;
  });
  add('GET', 'requests/:id', (call) => {
    const exchange = stage.requests.exchange(idParam(call, 'id'));
    if (exchange === undefined) throw notFound('the request, or what was kept of it,');
    return ok(wholeRequest(exchange));
  });

  let waiting = 0;
  add('POST', 'expectations', async (call) => {
    const expectation = readExpectation(adminBody(call, 'expectations'));
    if (waiting >= MAX_WAITING) throw refusal(429, `${MAX_WAITING} expectations wait already`);
    waiting++;
    try {
      return ok({ requests: await stage.expectRequests(expectation) });
    } catch (error) {
      if (error instanceof ExpectationError) throw refusal(409, error.message);
      throw error;
    } finally {
      waiting--;
    }
  });
}

function list(call: Call, stage: Stage): Answer {
  const { requests } = stage;
  const wanted = matchOf(call);
  if (call.query.get('whole') !== 'true') {
    if ([...call.query.keys()].length === 0) return ok({ total: requests.total, requests: requests.list() });
    const ids = new Set(exchangesOf(requests, wanted).map(({ entry }) => entry.id));
    const chosen = requests.list().filter(({ id }) => ids.has(id));
    return ok({ total: requests.total, requests: chosen.slice(-limitOf(call, chosen.length)) });
  }
  const found = exchangesOf(requests, wanted);
  // After a request they are read on from it: the first ones; else those that came last.
  const limit = limitOf(call, MAX_WHOLE);
  const chosen = wanted.after === undefined ? found.slice(-limit) : found.slice(0, limit);
  return ok({ total: requests.total, requests: chosen.map(wholeRequest) });
}

function matchOf(call: Call): RequestMatch {
  const match: RequestMatch = {};
  for (const name of ['method', 'path'] as const) {
    const text = call.query.get(name);
    if (text !== null) match[name] = text;
  }
  for (const name of ['asset', 'status', 'after'] as const) {
    const number = numberOf(call, name);
    if (number !== undefined) match[name] = number;
  }
  return match;
}

function limitOf(call: Call, otherwise: number): number {
  const limit = numberOf(call, 'limit') ?? otherwise;
  return Math.max(1, Math.min(limit, MAX_WHOLE * 10));
}

function numberOf(call: Call, name: string): number | undefined {
  const text = call.query.get(name);
  if (text === null) return undefined;
  if (!/^\d{1,12}$/.test(text)) throw refusal(400, 'is no whole number', name);
  return Number(text);
}

function readExpectation(body: Record<string, unknown>): Expectation {
  for (const name of ['method', 'path'] as const) {
    if (body[name] !== undefined && typeof body[name] !== 'string') throw refusal(400, 'is no text', name);
  }
  for (const name of ['asset', 'status', 'after', 'times', 'withinMs'] as const) {
    const value = body[name];
    if (value !== undefined && !(Number.isSafeInteger(value) && (value as number) >= 0)) {
      throw refusal(400, 'is no whole number', name);
    }
  }
  if (body.times === 0) throw refusal(400, 'is at least 1; what never comes is `never`', 'times');
  if ((body.withinMs as number | undefined) !== undefined && (body.withinMs as number) > MAX_WITHIN_MS) {
    throw refusal(400, `is at most ${MAX_WITHIN_MS}`, 'withinMs');
  }
  if (body.never !== undefined && typeof body.never !== 'boolean') {
    throw refusal(400, 'is neither true nor false', 'never');
  }
  if (body.body !== undefined && !isObject(body.body)) throw refusal(400, 'is no object', 'body');
  return body as Expectation;
}
