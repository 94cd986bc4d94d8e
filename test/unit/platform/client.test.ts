import type { ServerResponse } from 'node:http';
import { afterEach, beforeEach, describe, expect, it } from 'vitest';
import { PlatformClient, type PlatformClientOptions } from '../../../src/platform/client.ts';
import { listEntries } from '../../../src/platform/resources/lists.ts';
import type { ResponseRecord } from '../../../src/platform/response-body.ts';
import { CallRefusal, callErrorOf } from '../../../src/platform/response-meanings.ts';
import { SessionBench, until } from './session-bench.ts';
import { json, type SeenRequest } from './token-server.ts';
import { untilValid } from './until-valid.ts';

let bench: SessionBench;

beforeEach(async () => {
  bench = await new SessionBench().open();
  await bench.start();
});
afterEach(() => bench.close());

/** Budget that records its calls. */
class CountingBudget implements NonNullable<PlatformClientOptions['budget']> {
  taken: string[] = [];
  refunded = 0;
  closedMs: number[] = [];
  async acquire(kind: string): Promise<void> {
    this.taken.push(kind);
  }
  refund(): void {
    this.refunded++;
  }
  refused(closedMs: number): void {
    this.closedMs.push(closedMs);
  }
}

function clientOf(options: Partial<PlatformClientOptions> = {}): PlatformClient {
  const { boundary, clock, log, session: tokens } = bench;
  return new PlatformClient({ boundary, baseUrl: bench.server.url, tokens, clock, log, ...options });
}

/** Sets the response to every API call. */
function answering(answer: (response: ServerResponse, seen: SeenRequest) => void): void {
  bench.server.faults.push((seen, response) => {
    if (seen.path.startsWith('/oauth/')) return false;
    answer(response, seen);
    return true;
  });
}

const tokenResponse = (date: string) => ({
  status: 200,
  header: () => date,
  text: '{"access_token":"a"}',
  redact: String,
});
const list = { method: 'GET', path: '/v1/things', kind: 'other' } as const;
const calls = () => bench.server.seen.filter((seen) => !seen.path.startsWith('/oauth/'));

async function thrownBy(call: Promise<unknown>): Promise<CallRefusal> {
  try {
    await call;
  } catch (error) {
    return error as CallRefusal;
  }
  throw new Error('nothing was thrown');
}

describe('API call', () => {
  it('sends the token, API key header, query and JSON body, and returns any status with its text', async () => {
    const client = clientOf({ apiKey: { header: 'API-Key', clientId: 'the-key' } });
    answering((response) => json(response, 418, { ok: 1 }));
    const answer = await client.request({
      method: 'PATCH',
      path: '/v2/things/1',
      query: { a: 'b c', left: undefined, n: 3 },
      body: { hello: 'wörld' },
      kind: 'other',
    });
    expect(answer).toMatchObject({ status: 418, text: '{"ok":1}' });
    const [seen] = calls();
    expect(seen!.headers).toMatchObject({
      authorization: `Bearer ${bench.server.tokens[0]!.access}`,
      'api-key': 'the-key',
      'content-type': 'application/json',
    });
    expect(seen!.body).toBe('{"hello":"wörld"}');
  });

  it('is charged to the budget for its kind, and refunded if it does not reach the platform', async () => {
    const budget = new CountingBudget();
    const client = clientOf({ budget });
    await client.request(list);
    await client.request({ ...list, kind: 'paid' });
    expect(budget.taken).toEqual(['other']);
    await bench.server.stop();
    const refused = { code: 'platform.connection_refused' };
    await expect(client.request(list)).rejects.toMatchObject(refused);
    await expect(client.request({ ...list, kind: 'paid' })).rejects.toMatchObject(refused);
    expect(budget.refunded).toBe(2);
    await bench.server.start();
    answering((response) => void response.destroy());
    await expect(client.request(list)).rejects.toMatchObject({ code: 'platform.connection_reset' });
    expect(budget.refunded).toBe(2);
  });

  it('has a valid token after it waited for the budget longer than the lifetime of its token', async () => {
    const budget = new CountingBudget();
    budget.acquire = () => bench.clock.sleep(15 * 60_000);
    const answer = clientOf({ budget }).request({ method: 'GET', path: '/v1/things', kind: 'other' });
    await bench.pass(32 * 60_000);
    expect([(await answer).status, calls().length]).toEqual([200, 1]);
  });

  it('is charged again for the retry after a 401', async () => {
    const budget = new CountingBudget();
    const client = clientOf({ budget });
    await client.request({ ...list, kind: 'paid' });
    await bench.pass(60_000, 30_000);
    bench.server.tokens[0]!.revokedMs = 0;
    expect((await client.request({ ...list, kind: 'paid' })).status).toBe(200);
    expect(budget.taken).toEqual(['live']);
    expect(calls()).toHaveLength(3);
  });

  it('is charged for each retry with a token that the platform does not know yet', async () => {
    const budget = new CountingBudget();
    const client = clientOf({ budget });
    answering((response) => json(response, calls().length < 5 ? 401 : 200, {}));
    let status: number | undefined;
    void client.request(list).then((answer) => (status = answer.status));
    await until(() => calls().length === 1);
    await bench.pass(15_000, 1_000);
    await until(() => status !== undefined);
    expect([status, calls().length, budget.taken.length, bench.server.tokens.length]).toEqual([200, 5, 5, 1]);
  });

  it('counted by the quota pauses once after a 429, even if the 429 has no Date header', async () => {
    const budget = new CountingBudget();
    const client = clientOf({ budget });
    const date = 'Sat, 21 Nov 2026 10:00:45 GMT';
    bench.server.faults.push((seen, response) => {
      response.sendDate = false;
      if (seen.path.startsWith('/oauth/')) return false;
      if (calls().length === 1) json(response, 200, {}, { date });
      else json(response, 429, {});
      return true;
    });
    client.platformClock.read(tokenResponse(date));
    await client.request({ ...list, kind: 'paid' });
    await bench.clock.advance(5_000);
    expect((await client.request({ ...list, kind: 'paid' })).status).toBe(429);
    expect(budget.closedMs).toEqual([10_000]);
  });

  it('pauses the budget for Retry-After, or until the next platform minute', async () => {
    const budget = new CountingBudget();
    const client = clientOf({ budget });
    answering((response) => {
      const headers = calls().length === 1 ? { 'retry-after': '7' } : { date: 'Sat, 21 Nov 2026 10:00:45 GMT' };
      json(response, 429, {}, headers as Record<string, string>);
    });
    await client.request(list);
    await client.request(list);
    expect(budget.closedMs).toEqual([7_000, 15_000]);
  });

  it('does not set the platform clock, whatever its date is', async () => {
    const client = clientOf();
    answering((response) => json(response, 200, {}, { date: new Date(bench.clock.wallMs() + 90_000).toUTCString() }));
    await client.request(list);
    expect(client.platformClock.nowMs()).toBeUndefined();
  });

  it('ends immediately if aborted during a token renewal, without interrupting the renewal', async () => {
    const held = Promise.withResolvers<void>();
    bench.server.faults.push(async (seen) => {
      if (seen.path === '/oauth/token') await held.promise;
      return false;
    });
    await bench.pass(60_000, 30_000);
    const lease = await bench.session.lease();
    lease.responded(401);
    lease.release();
    const abort = new AbortController();
    const call = clientOf().request({ ...list, signal: abort.signal });
    abort.abort(new Error('stopping'));
    await expect(call).rejects.toThrow('stopping');
    await until(() => bench.server.count('/oauth/token') === 2);
    held.resolve();
    await untilValid(bench.session);
  });
});

describe('API call error', () => {
  it('contains the platform message, the status and a hint', async () => {
    const errors = [{ type: 'invalid', message: 'must be\na number', attribute: 'id' }, { type: 'other' }, null, 7];
    answering((response) => json(response, 400, { errors }));
    const error = await thrownBy(clientOf().act(list));
    expect(error).toBeInstanceOf(CallRefusal);
    expect(error).toMatchObject({ status: 400, code: 'platform.invalid', retryable: false });
    expect(error.message).toBe('the platform responded 400 (invalid) to GET /v1/things: id: must be a number; other');
    expect(error.hint).toBeTruthy();
  });

  it('is classified by the status alone', () => {
    const retryable = [401, 402, 408, 429, 500, 502, 503, 504, 599];
    const final = [302, 400, 403, 404, 405, 409, 413, 422];
    for (const status of retryable) expect(callErrorOf(status).retryable, String(status)).toBe(true);
    for (const status of final) expect(callErrorOf(status).retryable, String(status)).toBe(false);
    expect(callErrorOf(422).code).toBe(callErrorOf(400).code);
  });

  it('omits a body that is not JSON', async () => {
    answering((response) => response.writeHead(200).end('secret-in-a-page'));
    const error = await thrownBy(clientOf().act(list));
    expect(error.code).toBe('platform.unreadable');
    expect(String(error.stack) + String(error.cause)).not.toContain('secret-in-a-page');
  });
});

describe('paginated list', () => {
  const things = { path: '/v1/things', members: ['things'] };
  const readThing = (entry: ResponseRecord) => ({ id: entry.integer('id') });
  const pages = (count: number, pagination: boolean) =>
    answering((response, seen) => {
      const page = calls().length;
      const things = [{ id: page * 2 - 1 }, { id: page * 2 }];
      json(response, 200, { things, ...(pagination ? { pagination: { page, page_count: count } } : {}) });
      expect(seen.path).toBe('/v1/things');
    });
  const ids = async () => (await Array.fromAsync(listEntries(clientOf(), things, readThing))).map((one) => one.id);

  it('is read page by page up to page_count', async () => {
    pages(3, true);
    expect(await ids()).toEqual([1, 2, 3, 4, 5, 6]);
    expect(calls()).toHaveLength(3);
  });

  it('consists of one page if the platform does not support pagination', async () => {
    pages(3, false);
    expect(await ids()).toEqual([1, 2]);
  });

  it('requests pages only as the caller reads them', async () => {
    pages(100, true);
    for await (const thing of listEntries(clientOf(), things, readThing)) {
      if (thing.id === 3) break;
    }
    expect(calls()).toHaveLength(2);
  });

  it('ends at the first empty page, regardless of page_count', async () => {
    answering((response) => json(response, 200, { things: [], pagination: { page_count: 9_999_999 } }));
    expect(await ids()).toEqual([]);
    expect(calls()).toHaveLength(1);
  });

  it('ends at a repeated page, because the platform ignores the page number', async () => {
    const things = Array.from({ length: 100 }, (_, id) => ({ id }));
    answering((response) => json(response, 200, { things }));
    expect(await ids()).toHaveLength(100);
    expect(calls()).toHaveLength(2);
  });

  it('fails after one request if the response is a web page', async () => {
    answering((response) => response.writeHead(200, { 'content-type': 'text/html' }).end('<html>Sign in</html>'));
    const portal = { code: 'platform.unreadable', hint: expect.stringContaining('captive portal') };
    await expect(ids()).rejects.toMatchObject(portal);
    expect(calls()).toHaveLength(1);
  });

  it('fails if the response contains no list', async () => {
    answering((response) => json(response, 200, { others: [] }));
    await expect(ids()).rejects.toMatchObject({ code: 'platform.unreadable' });
  });
});

describe('response record', () => {
  const call = { method: 'GET', path: '/v1/things/7', kind: 'other' } as const;
  const record = async (body: unknown) => {
    bench.server.faults.length = 0;
    answering((response) => json(response, 200, body));
    return await clientOf().record(call, 'thing');
  };

  it('is read from the body or from the member named after the record', async () => {
    for (const body of [{ id: 7 }, { id: '7' }, { thing: { id: 7 } }]) {
      expect((await record(body)).integer('id')).toBe(7);
    }
  });

  it('is rejected with the request and member name if its structure is unexpected', async () => {
    const unreadable = (member: string) => ({
      code: 'platform.unreadable',
      message: expect.stringMatching(new RegExp(`GET /v1/things/7: ${member} must be`)),
    });
    for (const body of [[], 'text', 5]) {
      expect(await thrownBy(record(body))).toMatchObject(unreadable('the body'));
    }
    expect(await thrownBy(record({ thing: 5 }))).toMatchObject(unreadable('thing'));
    const found = await record({ thing: { id: 1.5, name: 5, names: ['a', 1], is_on: 'yes', other: null } });
    const reads = {
      id: () => found.integer('id'),
      name: () => found.string('name'),
      names: () => found.strings('names'),
      is_on: () => found.boolean('is_on'),
      other: () => found.record('other'),
    };
    for (const [member, read] of Object.entries(reads)) {
      expect(await thrownBy(new Promise((resolve) => resolve(read())))).toMatchObject(unreadable(`thing\\.${member}`));
    }
    expect(found.optional('other', found.string)).toBeUndefined();
  });
});

describe('deprecated calls', () => {
  const v1 = { method: 'PATCH', path: '/v1/assets/5/display_labels', body: {}, kind: 'other' } as const;

  it('log a warning with the sunset date once per API area', async () => {
    const client = clientOf();
    await client.request(v1);
    await client.request({ ...v1, path: '/v1/instrumentations/6/display_labels' });
    const warnings = bench.lines.filter((line) => line.event === 'platform.deprecated');
    expect(warnings).toHaveLength(1);
    expect(warnings[0]).toMatchObject({ area: 'display-labels', sunset: '2027-03-01' });
  });

  it('fail from the sunset date (UTC) with an error that names the v2 alternative', async () => {
    bench.clock.jumpWall(Date.UTC(2027, 2, 1) - 1 - bench.clock.wallMs());
    await clientOf().request(v1);
    bench.clock.jumpWall(1);
    const client = clientOf();
    const error = await thrownBy(client.request(v1));
    expect(error).toMatchObject({ code: 'platform.sunset', retryable: false });
    expect(error.hint).toContain('/v2/');
    await client.request({ ...v1, path: '/v2/assets/5/display_labels' });
    // Posting values is v1 and not deprecated.
    await client.request({ ...v1, path: '/v1/assets/5/values' });
  });

  it('are not sent unless the gateway clock or the platform clock is trusted', async () => {
    const client = clientOf();
    bench.clock.jumpWall(-bench.clock.wallMs());
    expect(await thrownBy(client.request(v1))).toMatchObject({ code: 'platform.sunset_unknown', retryable: false });
    client.platformClock.read(tokenResponse('Sun, 28 Feb 2027 23:59:50 GMT'));
    await client.request(v1);
    const late = clientOf();
    late.platformClock.read(tokenResponse('Mon, 01 Mar 2027 00:00:00 GMT'));
    expect(await thrownBy(late.request(v1))).toMatchObject({ code: 'platform.sunset' });
  });
});
