import { join } from 'node:path';
import { crc32 } from 'node:zlib';
import Database from 'better-sqlite3';
import { afterEach, beforeEach, describe, expect, it } from 'vitest';
import { AgentProcess } from './harness/agent-process.ts';
import { Platform } from './harness/platform.ts';
import { type PushFormat, pushAs, VALUE_TAGS, ValuePlant } from './harness/value-plant.ts';
import { runVerb } from './harness/verb.ts';

const FORMATS: readonly PushFormat[] = ['json', 'ndjson', 'line protocol'];
const EVERY_POST = { method: 'POST', path: '/v1/assets/*' };
const TAGS = `tags:\n${VALUE_TAGS}`;

let platform: Platform;
let agent: AgentProcess;

beforeEach(async () => {
  platform = await Platform.start();
  agent = new AgentProcess(platform.url, { tags: TAGS });
});
afterEach(async () => {
  await agent.dispose();
  await platform.stop();
});

const configure = (env: Record<string, string>) => agent.write(platform.url, { tags: TAGS, env });
const buffered = () => agent.metric('tagferry_buffer_values');
const drained = () => agent.until(async () => (await buffered()) === 0, 'the buffer is empty');
const pause = (ms: number) => new Promise((resolve) => setTimeout(resolve, ms));

/** Consecutive values of one series, with digits that do not compress well. */
const series = (from: number, count: number, tag = 'T-881') =>
  Array.from({ length: count }, (_, i) => ({
    tag,
    key: 'a',
    value: Math.sqrt(from + i),
    timestamp: 1_700_000_000_000 + from + i,
  }));

/** Returns a repeatable sequence of numbers between 0 and 1. */
function sequence(seed: number): () => number {
  let state = seed;
  return () => {
    state = (state * 48_271) % 2_147_483_647;
    return state / 2_147_483_647;
  };
}

describe('agent killed with kill -9', () => {
  it('neither loses nor invents pushed values during ingestion, outage and drain', async () => {
    const chance = sequence(4_711_000);
    // Small posts, so that both live values and a backlog are in progress at the kill.
    configure({ POST_INTERVAL: '100ms', POST_MAX_VALUES: '500' });
    await agent.start();
    const plant = new ValuePlant(agent, 10, FORMATS);
    for (let round = 0; round < 5; round++) {
      if (round % 3 === 1) await platform.fail(chance() < 0.5 ? 'refuse' : 'drop');
      if (round % 3 === 2) await platform.recover();
      await pause(100 + chance() * 500);
      expect(await agent.end('SIGKILL')).toBe('SIGKILL');
      await agent.start();
    }
    await platform.recover();
    await plant.stop();
    await drained();
    const { acknowledged, ...wrong } = plant.count(platform);
    expect(wrong).toEqual({ missing: 0, invented: 0, different: 0 });
    expect(acknowledged).toBeGreaterThan(100);
  });

  it('delivers the values of a request killed immediately after its 204, in every format', async () => {
    // An acknowledgement before the commit would precede the commit by most of this interval.
    configure({ COMMIT_INTERVAL: '500ms' });
    const fault = platform.addFault({ ...EVERY_POST, status: 503 });
    let from = 0;
    for (const format of FORMATS) {
      await agent.start();
      // The interval begins with the commit of the first request.
      for (let request = 0; request < 2; request++) {
        expect(await pushAs(format, agent, series(from, 100))).toBe(204);
        from += 100;
      }
      await agent.end('SIGKILL');
    }
    platform.removeFault(fault);
    await agent.start();
    await agent.until(() => platform.counts(881).stored === from, 'every acknowledged value is on the platform');
  });

  it('does not restore purged or quarantined values', async () => {
    const [poisoned, purged, kept] = [series(1, 1)[0]!, series(100, 50, 'T-882'), series(200, 1, 'T-883')];
    await agent.start();
    platform.poison({ asset: 881, timestampMs: poisoned.timestamp });
    expect((await agent.push([poisoned])).status).toBe(204);
    let accepted = 0;
    // A value is quarantined only if the platform accepts others.
    await agent.until(async () => {
      await agent.push(series(1_000 + accepted++, 1));
      // The list contains committed values only.
      return (await runVerb(agent, 'buffer', 'quarantine', '--json')).stdout.includes('"asset": 881');
    }, 'the value is in quarantine');
    const fault = platform.addFault({ ...EVERY_POST, status: 503 });
    expect((await agent.push(purged)).status).toBe(204);
    // Values of a post in progress cannot be purged.
    await agent.until(async () => {
      expect((await runVerb(agent, 'buffer', 'purge', '--tag', 'T-882', '--yes')).status).toBe(0);
      return (await agent.metric('tagferry_values_dropped_total{reason="purge"}')) === purged.length;
    }, 'the values are purged');
    expect((await agent.push(kept)).status).toBe(204);
    await agent.end('SIGKILL');
    // From here on, the platform would accept everything.
    platform.clearFaults();
    platform.removeFault(fault);
    await agent.start();
    await agent.until(() => platform.counts(883).stored === 1, 'the value that was kept is on the platform');
    await drained();
    expect(platform.counts(882).received).toBe(0);
    expect(platform.stored(881, 'a').map(({ timestampMs }) => timestampMs)).not.toContain(poisoned.timestamp);
    expect(platform.counts(881).stored).toBe(accepted);
    expect(await agent.metric('tagferry_buffer_quarantined_values')).toBe(1);
  });
});

describe('buffer retarget', () => {
  it('moves values only after a confirmation and to an asset in tags.yaml, from a running and a stopped agent', async () => {
    await agent.start();
    await platform.fail();
    const wrong = series(0, 30).map(({ tag: _, ...value }) => ({ ...value, asset: 999, unit: 1 }));
    expect((await agent.push(wrong)).status).toBe(204);
    const retarget = (from: number, to: number, ...options: string[]) =>
      runVerb(agent, 'buffer', 'retarget', '--from-asset', `${from}`, '--to-asset', `${to}`, ...options);
    const list = async () => {
      const { stdout } = await runVerb(agent, 'buffer', 'ls', '--json');
      return (JSON.parse(stdout) as { asset: number; values: number }[]).map(({ asset, values }) => [asset, values]);
    };
    const expectRejections = async (from: number) => {
      // Without a terminal, a confirmation is not possible.
      const unconfirmed = await retarget(from, 881);
      expect(unconfirmed).toMatchObject({ status: 2, stdout: '' });
      expect(unconfirmed.stderr).toMatch(/30 undelivered values of 1 series from asset \d+ to asset 881\?.*--yes/s);
      const unknown = await retarget(from, 778, '--yes');
      expect(unknown).toMatchObject({ status: 2, stdout: '' });
      expect(unknown.stderr).toMatch(/778 is not in tags\.yaml.*--force/s);
      expect(await list()).toEqual([[from, 30]]);
    };
    await expectRejections(999);
    expect(await retarget(999, 777, '--yes', '--force')).toMatchObject({ status: 0 });
    expect(await agent.end('SIGTERM')).toBe(0);
    await expectRejections(777);
    expect(await retarget(777, 881, '--yes')).toMatchObject({ status: 0 });
    await agent.start();
    await platform.recover();
    await drained();
    const moved = wrong.map(({ timestamp: timestampMs, value }) => ({ timestampMs, value }));
    expect(platform.compare(881, 'a', moved)).toEqual({ missing: [], invented: [], different: [] });
    expect(platform.counts().received).toBe(30);
  });
});

describe('series with the highest number that MAX_SERIES allows', () => {
  const HIGHEST = 10_000_000;
  const sumOf = (fields: unknown[]) => crc32(JSON.stringify(fields));

  /** Renumbers the series of the quarantine, because creating ten million series would take too long. */
  function renumber(): void {
    const database = new Database(join(agent.state, 'buffer.db'));
    const row = 'SELECT series, count, status, message, at_ms FROM quarantine';
    const [from, ...quarantined] = database.prepare<[], unknown[]>(row).raw().get()!;
    const fields = database.prepare<[unknown], unknown[]>('SELECT * FROM series WHERE id = ?').raw().get(from)!;
    const renumbered = [HIGHEST, ...fields.slice(1, -1)];
    const update = 'UPDATE series SET id = ?, sum = ? WHERE id = ?';
    expect(database.prepare(update).run(HIGHEST, sumOf(renumbered), from).changes).toBe(1);
    const sum = sumOf([HIGHEST, ...quarantined]);
    expect(database.prepare('UPDATE quarantine SET series = ?, sum = ?').run(HIGHEST, sum).changes).toBe(1);
    // Its rows are settled, and contain the previous number.
    database.exec('DELETE FROM log');
    database.close();
  }

  it('loses no acknowledged values if the agent is killed with kill -9', async () => {
    const [poisoned, values] = [series(0, 1)[0]!, series(1, 100)];
    platform.poison({ asset: 881, timestampMs: poisoned.timestamp });
    await agent.start();
    expect((await agent.push([poisoned])).status).toBe(204);
    let accepted = 0;
    // A value is quarantined only if the platform accepts others.
    await agent.until(async () => {
      await agent.push(series(accepted++, 1, 'T-882'));
      return (await agent.metric('tagferry_buffer_quarantined_values')) === 1;
    }, 'the value is in quarantine');
    await drained();
    await agent.end('SIGTERM');
    renumber();
    const fault = platform.addFault({ ...EVERY_POST, status: 503 });
    await agent.start();
    expect((await agent.push(values)).status).toBe(204);
    await agent.end('SIGKILL');
    platform.removeFault(fault);
    await agent.start();
    await drained();
    expect(platform.counts(881).stored).toBe(values.length);
    expect(agent.logged('store.row_damaged')).toEqual([]);
  });
});

describe('agent stopped with SIGTERM', () => {
  it('loses no values and posts none twice, during an outage and during the drain', async () => {
    configure({ POST_INTERVAL: '100ms', POST_MAX_VALUES: '200' });
    await agent.start();
    const plant = new ValuePlant(agent, 10, FORMATS);
    const isPosting = (posts: number) => () => platform.counts().posts >= posts;
    await agent.until(isPosting(3), 'live values are posted');
    await platform.fail({ status: 503 });
    await agent.until(async () => (await agent.metric('tagferry_platform_unavailable_seconds')) > 0, 'an outage');
    await agent.until(async () => (await buffered()) > 1_000, 'there is a backlog');
    expect(await agent.end('SIGTERM')).toBe(0);
    await agent.start();
    await platform.recover();
    const before = platform.counts().posts;
    await agent.until(isPosting(before + 3), 'the backlog is being posted');
    expect(await agent.end('SIGTERM')).toBe(0);
    await agent.start();
    await plant.stop();
    await drained();
    const { acknowledged, ...wrong } = plant.count(platform);
    expect(wrong).toEqual({ missing: 0, invented: 0, different: 0 });
    expect(acknowledged).toBeGreaterThan(1_000);
    const { stored, received } = platform.counts();
    expect(received - stored).toBe(0);
  });
});

describe('full buffer', () => {
  const REQUEST = 8_000;
  const BOUND = { BUFFER_MAX_BYTES: '1MB', BUFFER_MIN_FREE: '0', POST_INTERVAL: '100ms' };

  const sent = (count: number) => series(0, count).map(({ timestamp, value }) => ({ timestampMs: timestamp, value }));

  /** Pushes requests to one series until the condition applies. Returns the status of each request. */
  async function pushUntil(condition: (status: number) => boolean | Promise<boolean>): Promise<number[]> {
    const statuses: number[] = [];
    for (let isFull = false; !isFull; isFull = await condition(statuses.at(-1)!)) {
      expect(statuses.length).toBeLessThan(300);
      statuses.push((await agent.push(series(statuses.length * REQUEST, REQUEST))).status);
    }
    return statuses;
  }

  it('rejects requests with refuse-new, delivers every acknowledged value and then accepts values again', async () => {
    configure({ ...BOUND, BUFFER_FULL: 'refuse-new' });
    await agent.start();
    const fault = platform.addFault({ ...EVERY_POST, status: 503 });
    const statuses = await pushUntil((status) => status !== 204);
    expect(statuses.at(-1)).toBe(503);
    const acknowledged = (statuses.length - 1) * REQUEST;
    const { status, headers } = await agent.push(series(acknowledged, REQUEST));
    expect([status, Number(headers['retry-after'])]).toEqual([503, expect.any(Number)]);
    expect(await agent.metric('tagferry_refusing_values')).toBe(1);
    expect((await agent.status()).state).toBe('rejecting values');
    await agent.end('SIGKILL');
    platform.removeFault(fault);
    await agent.start();
    await agent.until(() => platform.counts(881).stored >= acknowledged, 'acknowledged values are on the platform');
    await agent.until(async () => (await agent.push(series(0, 1, 'T-882'))).status === 204, 'values are accepted');
    expect(platform.compare(881, 'a', sent(acknowledged))).toEqual({ missing: [], invented: [], different: [] });
    expect(await agent.metric('tagferry_values_dropped_total')).toBe(0);
  });

  it('drops the oldest values with drop-oldest, counts them and delivers all newer values', async () => {
    configure({ ...BOUND, BUFFER_FULL: 'drop-oldest' });
    await agent.start();
    const fault = platform.addFault({ ...EVERY_POST, status: 503 });
    const dropped = () => agent.metric('tagferry_values_dropped_total{reason="bytes"}');
    const statuses = await pushUntil(async () => (await dropped()) > 0);
    expect(new Set(statuses)).toEqual(new Set([204]));
    const acknowledged = statuses.length * REQUEST;
    // No values are dropped during the drain.
    const counts: number[] = [];
    await agent.until(async () => {
      await agent.push(series(counts.length, 1, 'T-882'));
      counts.push(await dropped());
      return new Set(counts.slice(-10)).size === 1 && counts.length >= 10;
    }, 'the buffer fits the limit');
    platform.removeFault(fault);
    await drained();
    const count = await dropped();
    expect(count).toBeLessThan(acknowledged);
    await expect.poll(() => agent.logged('buffer.dropped')[0]).toMatchObject({ reason: 'bytes' });
    const { missing, invented, different } = platform.compare(881, 'a', sent(acknowledged));
    expect({ invented, different }).toEqual({ invented: [], different: [] });
    expect(missing.length).toBe(count);
    expect(missing.at(-1)).toBe(sent(count).at(-1)!.timestampMs);
  });
});
