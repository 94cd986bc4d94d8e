import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { AgentProcess } from '../harness/agent-process.ts';
import { Platform } from '../harness/platform.ts';

const START_MS = 1_700_000_000_000;
const FORMATS = ['json', 'ndjson', 'lines', 'untimed'] as const;
const TAGS = `tags:
  P:
    asset: 881
    values: { json: { unit: 1 }, ndjson: { unit: 1 }, lines: { unit: 1 }, untimed: { unit: 1 } }
  T:
    asset: 882
    values:
      a: { unit: 1 }
      b: { unit: 1 }
      state: { unit: 1, map: { RUN: 1, "OFF": 0 } }
`;

type Format = (typeof FORMATS)[number];
type Sent = { timestampMs: number; value: number };

let platform: Platform;
let agent: AgentProcess;

beforeAll(async () => {
  platform = await Platform.start();
  // Long enough for a kill between a premature response and its commit.
  agent = new AgentProcess(platform.url, { tags: TAGS, env: { COMMIT_INTERVAL: '300ms' } });
  await agent.start();
});
afterAll(async () => {
  await agent?.dispose();
  await platform?.stop();
});

const post = (path: string, type: string, body: string) =>
  agent.call(agent.ingest, path, { body, headers: { 'Content-Type': type } });
const ndjson = (values: readonly object[], query = '') =>
  post(`/v1/values${query}`, 'application/x-ndjson', values.map((one) => `${JSON.stringify(one)}\n`).join(''));
const lines = (text: string, query = '') => post(`/api/v2/write${query}`, 'text/plain', text);
const stored = (key: string) => platform.stored(882, key).map(({ timestampMs, value }) => [timestampMs, value]);

let nextFirst = 0;

/** Pushes consecutive numbers in one format, two per request, until it is stopped. */
class Pusher {
  readonly acknowledged: Sent[] = [];
  readonly offered: Sent[] = [];
  readonly #format: Format;
  /** A repeated test pushes other numbers. */
  readonly #first = nextFirst;
  readonly #done: Promise<void>;
  #isRunning = true;

  constructor(format: Format) {
    this.#format = format;
    this.#done = this.#run();
  }

  async stop(): Promise<void> {
    this.#isRunning = false;
    await this.#done;
  }

  async #run(): Promise<void> {
    while (this.#isRunning) {
      const batch = [0, 1].map((at) => {
        const value = this.#first + this.offered.length + at;
        return { timestampMs: START_MS + value, value };
      });
      this.offered.push(...batch);
      const response = await this.#push(batch).catch(() => undefined);
      if (response?.status === 204) this.acknowledged.push(...batch);
      // A stopped agent refuses connections.
      else await new Promise((resolve) => setTimeout(resolve, 20));
    }
  }

  #push(batch: readonly Sent[]) {
    const key = this.#format;
    const values = batch.map(({ timestampMs, value }) =>
      key === 'untimed' ? { tag: 'P', key, value } : { tag: 'P', key, value, timestamp: timestampMs },
    );
    if (key === 'json') return agent.push(values);
    if (key !== 'lines') return ndjson(values);
    return lines(batch.map(({ timestampMs, value }) => `P ${key}=${value} ${timestampMs}\n`).join(''), '?precision=ms');
  }
}

describe('push', () => {
  it('delivers each acknowledged value of every format exactly once across kill -9', async () => {
    const pushers = FORMATS.map((format) => new Pusher(format));
    for (let kill = 0; kill < 3; kill++) {
      const before = pushers.map(({ acknowledged }) => acknowledged.length);
      // Kills the agent when the last format has just received its response.
      await agent.until(
        () => pushers.every(({ acknowledged }, at) => acknowledged.length > before[at]!),
        'every format has responses',
      );
      await agent.end('SIGKILL');
      await agent.start();
    }
    await Promise.all(pushers.map((pusher) => pusher.stop()));
    nextFirst += 1_000_000;
    for (const [at, format] of FORMATS.entries()) {
      const { acknowledged, offered } = pushers[at]!;
      const values = () => platform.stored(881, format).map(({ value }) => value);
      const hasAll = () => {
        const found = new Set(values());
        return acknowledged.every(({ value }) => found.has(value));
      };
      await agent.until(hasAll, `every acknowledged value of ${format} arrives`);
      expect(values().length).toBe(new Set(values()).size);
      if (format === 'untimed') continue;
      const { missing } = platform.compare(881, format, acknowledged);
      const { invented, different } = platform.compare(881, format, offered);
      expect({ missing, invented, different }).toEqual({ missing: [], invented: [], different: [] });
    }
  });

  it('rejects a request with an invalid value, names the value by its index, and stores nothing', async () => {
    const good = { tag: 'T', key: 'a', value: 1, timestamp: START_MS };
    const wrong = [
      [{ ...good, value: 'x' }, 'value'],
      [{ ...good, timestamp: 1_700_000_000 }, 'timestamp'],
      [{ ...good, timestmp: 1 }, 'timestmp'],
      [{ ...good, key: 'c' }, 'key'],
      [{ ...good, key: 'state', value: 'IDLE' }, 'value'],
    ] as const;
    for (const [value, field] of wrong) {
      for (const response of [await agent.push([good, good, value]), await ndjson([good, good, value])]) {
        expect([field, response.status]).toEqual([field, 422]);
        expect(JSON.parse(response.text).problems).toMatchObject([{ index: 2, field }]);
      }
    }
    expect((await post('/v1/values', 'application/json', '{"values":[')).status).toBe(400);
    const last = { ...good, timestamp: START_MS + 10, value: 10 };
    expect((await agent.push([last])).status).toBe(204);
    await agent.until(() => stored('a').length > 0, 'the valid value arrives');
    expect(stored('a')).toEqual([[START_MS + 10, 10]]);
    expect(stored('state')).toEqual([]);
  });

  it.each([
    [
      'JSON',
      'a',
      (values: readonly object[], query: string) =>
        post(`/v1/values${query}`, 'application/json', JSON.stringify({ values })),
    ],
    ['NDJSON', 'b', ndjson],
  ] as const)(
    'stores the valid values of a %s request with partial=true, and reports the others',
    async (_, key, send) => {
      const at = START_MS + 100_000;
      const body = [0, 1, 2, 3].map((n) => ({ tag: 'T', key: n === 1 ? 'c' : key, value: n, timestamp: at + n }));
      const part = await send(body, '?partial=true');
      expect([part.status, JSON.parse(part.text)]).toMatchObject([
        200,
        { accepted: 3, refused: 1, problems: [{ index: 1, field: 'key' }] },
      ]);
      expect((await send([body[1]!], '?partial=true')).status).toBe(422);
      const isStored = () => stored(key).filter(([timeMs]) => timeMs! >= at && timeMs! < at + 10);
      await agent.until(() => isStored().length >= 3, 'the valid values arrive');
      expect(isStored().map(([, value]) => value)).toEqual([0, 2, 3]);
    },
  );

  it.each(['/write', '/api/v2/write'])(
    'stores the valid lines of line protocol, and quotes the others (%s)',
    async (path) => {
      const at = START_MS + (path === '/write' ? 200_000 : 210_000);
      const text = `T b=4 ${at + 4}\nother b=5 ${at + 5}\nT b=,\nT b=6 ${at + 6}\n`;
      const part = await post(`${path}?precision=ms`, 'text/plain', text);
      const { error } = JSON.parse(part.text);
      expect([part.status, error]).toEqual([400, expect.stringMatching(/^partial write: .* dropped=2$/)]);
      expect(error).toContain(`line 2 "other b=5 ${at + 5}": tag "other" is not in tags.yaml`);
      expect(error).toContain('line 3 "T b=,": a field has no value');
      const isStored = () => stored('b').filter(([timeMs]) => timeMs! >= at && timeMs! < at + 10);
      await agent.until(() => isStored().length >= 2, 'the valid lines arrive');
      expect(isStored()).toEqual([
        [at + 4, 4],
        [at + 6, 6],
      ]);
    },
  );

  it('rejects implausible timestamps, suggests the matching precision, and stores the other lines', async () => {
    const at = START_MS + 400_000;
    const errorOf = async (text: string, query = '') => JSON.parse((await lines(text, query)).text).error as string;
    for (const query of ['', '?precision=ns']) {
      expect(await errorOf(`T a=1 ${at / 1_000}\n`, query)).toContain('use precision=s dropped=1');
      expect(await errorOf(`T a=1 ${at}\n`, query)).toContain('use precision=ms dropped=1');
    }
    const board = await errorOf(`T a=1 8\nT a=2 ${at / 1_000}\n`, '?precision=s');
    expect(board).toContain('line 1 "T a=1 8": timestamp 1970-01-01T00:00:08.000Z is before 2000-01-01');
    const response = await agent.push([{ tag: 'T', key: 'a', value: 1, timestamp: Date.now() + 90_000_000 }]);
    expect([response.status, response.text]).toEqual([422, expect.stringContaining('more than a day ahead')]);
    expect((await lines(`T a=3 ${at / 1_000}\n`, '?precision=s')).status).toBe(204);
    const here = () => stored('a').filter(([timeMs]) => timeMs! < START_MS || timeMs! >= at);
    await agent.until(() => here().some(([, value]) => value === 3), 'the valid lines arrive');
    expect(here()).toEqual([[at, 3]]);
    expect((await lines(`T a=4 ${at / 1_000}\nT a=5 ${at / 1_000}\n`, '?precision=s')).status).toBe(204);
    const reported = () => agent.logged('source.same_time').map(({ source, error }) => `${source}: ${error}`);
    await agent.until(() => reported().length > 0, 'the overwritten values are reported');
    expect(reported()).toEqual([expect.stringMatching(/^influx: asset 882 a at .*precision=ms or finer/)]);
  });

  it('stores and reports timestamps that are an hour ahead, and those without a UTC offset', async () => {
    const timestamp = Date.now() + 3_600_000;
    const local = new Date(timestamp).toISOString().slice(0, 19);
    for (const time of [timestamp, local]) {
      expect((await agent.push([{ tag: 'T', key: 'b', value: 1, timestamp: time }])).status).toBe(204);
    }
    await agent.until(() => agent.logged('source.zone_missing').length > 0, 'both are reported');
    expect(agent.logged('source.zone_missing')).toMatchObject([
      { source: 'http', error: expect.stringMatching(/^timestamp ".*" has no UTC offset .*: add the offset/) },
    ]);
    expect(agent.logged('source.time_ahead')).toMatchObject([
      { source: 'http', error: expect.stringMatching(/^asset 882 b: timestamp .* is 1 h ahead of the arrival time/) },
    ]);
  });

  it('keeps timestamps in every notation and precision, and separates the arrival times of one request', async () => {
    const at = START_MS + 300_000;
    const iso = new Date(at).toISOString();
    const beforeMs = Date.now();
    const json = (more: object) => agent.push([{ tag: 'T', key: 'a', ...more }]);
    const responses = await Promise.all([
      json({ value: 1, timestamp: iso }),
      json({ value: 2, timestamp: iso.replace('.000Z', '.001') }),
      json({ value: 3, timestamp: iso.replace('.000Z', '.002+00:00') }),
      json({ value: 4, timestamp: at + 3 }),
      lines(`T a=5 ${at / 1_000 + 1}\n`, '?precision=s'),
      lines(`T a=6 ${at + 2_000}\n`, '?precision=ms'),
      lines(`T a=7 ${at + 3_000}000\n`, '?precision=us'),
      lines(`T a=8 ${at + 4_000}000000\n`, '?precision=ns'),
      lines(`T a=9 ${at + 5_000}000000\n`),
      agent.push([{ tag: 'T', key: 'state', value: 'RUN', status: 'uncertain', timestamp: at }]),
      agent.push(['RUN', 'OFF', 'RUN'].map((value) => ({ tag: 'T', key: 'state', value }))),
    ]);
    expect(responses.map(({ status, text }) => [status, text])).toEqual(responses.map(() => [204, '']));
    await agent.until(() => platform.stored(882, 'state').length >= 4, 'the last values arrive');
    const times = () => stored('a').filter(([timeMs]) => timeMs! >= at && timeMs! < at + 100_000);
    await agent.until(() => times().length >= 9, 'the values with times arrive');
    expect(times().map(([timeMs, value]) => [timeMs! - at, value])).toEqual([
      [0, 1],
      [1, 2],
      [2, 3],
      [3, 4],
      [1_000, 5],
      [2_000, 6],
      [3_000, 7],
      [4_000, 8],
      [5_000, 9],
    ]);
    const states = platform.stored(882, 'state');
    expect(states.find(({ timestampMs }) => timestampMs === at)).toMatchObject({ value: 1, status: 'uncertain' });
    const arrived = states.filter(({ timestampMs }) => timestampMs !== at).slice(-3);
    expect(arrived.map(({ value }) => value)).toEqual([1, 0, 1]);
    expect(arrived[0]!.timestampMs).toBeGreaterThanOrEqual(beforeMs);
  });
});
