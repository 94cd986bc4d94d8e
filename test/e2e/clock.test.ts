import { createHmac } from 'node:crypto';
import { readFileSync } from 'node:fs';
import { join } from 'node:path';
import { afterEach, beforeEach, describe, expect, it } from 'vitest';
import { freePort } from '../../src/base/port-claim.ts';
import { AgentProcess } from './harness/agent-process.ts';
import { MovedClock } from './harness/moved-clock.ts';
import { Platform } from './harness/platform.ts';

const TAGS = 'tags:\n  T: { asset: 881, values: { a: { unit: 1 }, b: { unit: 1 } } }\n';
const EVERY_POST = { method: 'POST', path: '/v1/assets/*' };
const HOUR_MS = 3_600_000;
const DAY_MS = 24 * HOUR_MS;
const TEN_YEARS_MS = 3_650 * DAY_MS;

let platform: Platform;
let agent: AgentProcess;
let clock: MovedClock;

beforeEach(async () => {
  platform = await Platform.start();
  agent = new AgentProcess(platform.url, { tags: TAGS });
  clock = new MovedClock(agent);
});
afterEach(async () => {
  await agent.dispose();
  await platform.stop();
});

const start = () => agent.start(clock.environment);

/** Pushes values without timestamps. */
async function push(values: readonly number[], key = 'a'): Promise<void> {
  expect((await agent.push(values.map((value) => ({ tag: 'T', key, value })))).status).toBe(204);
}

const arrived = (count: number) =>
  agent.until(() => platform.counts(881).stored === count, `${count} values with different times have arrived`);
/** Values in order of their timestamps. */
const valuesOf = (key: string) => platform.stored(881, key).map(({ value }) => value);
const ascending = (values: readonly number[]) => [...values].sort((one, other) => one - other);

describe('wall clock that is two weeks behind', () => {
  it('does not make the timestamps of senders implausible', async () => {
    clock.move(-14 * DAY_MS);
    platform.addFault({ path: '/oauth/token', status: 503 });
    await start();
    const timestamps = [Date.now(), Date.now() + 1];
    const pushAt = (timestamp: number) => agent.push([{ tag: 'T', key: 'a', value: 1, timestamp }]);
    expect((await pushAt(timestamps[0]!)).status).toBe(204);
    platform.clearFaults();
    await arrived(1);
    expect((await pushAt(timestamps[1]!)).status).toBe(204);
    await arrived(2);
    expect(platform.stored(881, 'a').map(({ timestampMs }) => timestampMs)).toEqual(timestamps);
    expect((await pushAt(Date.now() + 2 * DAY_MS)).status).toBe(422);
  });
});

describe('wall clock that is set back between two runs', () => {
  it('repeats and reorders no arrival times, after SIGTERM and after kill -9', async () => {
    let sent = 0;
    const runs = [
      { movedMs: 0, signal: 'SIGKILL' },
      { movedMs: -HOUR_MS, signal: 'SIGTERM' },
      { movedMs: -HOUR_MS, signal: 'SIGKILL' },
      { movedMs: -HOUR_MS / 2, signal: 'SIGTERM' },
    ] as const;
    for (const { movedMs, signal } of runs) {
      clock.move(movedMs);
      await start();
      for (let request = 0; request < 3; request++) {
        await push([sent++, sent++]);
        await push([sent++], 'b');
      }
      await arrived(sent);
      await agent.end(signal);
    }
    for (const key of ['a', 'b']) expect(valuesOf(key)).toEqual(ascending(valuesOf(key)));
  });
});

describe('boot in 1970', () => {
  it.each([
    ['the run that accepted the values', false],
    ['a later run, still in 1970', true],
  ])('is corrected when the platform time is known in %s', async (_, restarts) => {
    await platform.fail();
    const fromMs = Date.now();
    clock.move(-fromMs + HOUR_MS);
    await start();
    for (let value = 1; value <= 3; value++) await push([value]);
    const untilMs = Date.now();
    if (restarts) {
      await agent.end('SIGTERM');
      clock.move(-Date.now() + HOUR_MS);
    }
    await platform.recover();
    if (restarts) await start();
    await arrived(3);
    expect(valuesOf('a')).toEqual([1, 2, 3]);
    for (const { timestampMs } of platform.stored(881, 'a')) {
      // The platform reports its time in seconds.
      expect(timestampMs).toBeGreaterThanOrEqual(fromMs - 2_000);
      expect(timestampMs).toBeLessThanOrEqual(untilMs + 2_000);
    }
    expect(await agent.metric('tagferry_values_restamped_total{outcome="corrected"}')).toBe(3);
  });

  it('is corrected when the wall clock becomes correct and falls back before the platform is available', async () => {
    await platform.fail();
    const fromMs = Date.now();
    clock.move(-fromMs + HOUR_MS);
    await start();
    await push([1]);
    clock.move(0);
    await push([2]);
    clock.move(-TEN_YEARS_MS);
    await push([3]);
    const untilMs = Date.now();
    await platform.recover();
    await arrived(3);
    // The corrected time of the last value can precede the second value by the resolution of the platform's time.
    expect(ascending(valuesOf('a'))).toEqual([1, 2, 3]);
    for (const { timestampMs } of platform.stored(881, 'a')) {
      expect(timestampMs).toBeGreaterThanOrEqual(fromMs - 2_000);
      expect(timestampMs).toBeLessThanOrEqual(untilMs + 2_000);
    }
  });
});

describe('wall clock that jumps while the agent is running', () => {
  const JUMPS = [0, 2 * HOUR_MS, -2 * HOUR_MS, -TEN_YEARS_MS, 0];
  const MANY = Array.from({ length: 2_000 }, (_, i) => 1 + i);
  const isBacklog = async () => ((await agent.status()) as { buffer: { backlog: number } }).buffer.backlog > 0;
  const dropped = () => agent.metric('tagferry_values_dropped_total');
  const oldestAge = () => agent.metric('tagferry_buffer_oldest_age_seconds');
  const configure = (env: Record<string, string>) => agent.write(platform.url, { tags: TAGS, env });

  it('neither expires values early nor keeps them longer than BUFFER_MAX_AGE', async () => {
    configure({ BUFFER_MAX_AGE: '1h' });
    platform.addFault({ ...EVERY_POST, status: 503 });
    await start();
    await push(MANY);
    await agent.until(isBacklog, 'the values are a backlog');
    for (const movedMs of JUMPS) {
      clock.move(movedMs);
      await push([0]);
      await push([0]);
      expect(await oldestAge()).toBeLessThan(HOUR_MS / 1000);
    }
    expect(await dropped()).toBe(0);
    clock.move(-DAY_MS);
    configure({ BUFFER_MAX_AGE: '2s' });
    agent.signal('SIGHUP');
    await agent.until(async () => (await dropped()) >= MANY.length, 'the values have expired');
  });

  it('neither delays posts nor reorders values without timestamps', async () => {
    await start();
    let sent = 0;
    for (const movedMs of JUMPS) {
      clock.move(movedMs);
      await push([sent++, sent++]);
      await push([sent++]);
      await arrived(sent);
    }
    expect(valuesOf('a')).toEqual(ascending(valuesOf('a')));
  });
});

describe('reaction with max_age on a gateway with a wrong clock', () => {
  it('runs for recent events and expires old ones, whether the clock is ahead or behind', async () => {
    const url = `http://127.0.0.1:${await freePort()}/webhook`;
    const ran = join(agent.folder, 'ran');
    const run = `[/bin/sh, -c, 'echo "$TAGFERRY_VALUE" >> "$0"', "${ran}"]`;
    agent.write(platform.url, {
      tags: TAGS,
      reactions: `reactions:\n  - { name: act, on: threshold_reached, max_age: 10m, do: [{ run: ${run} }] }\n`,
      env: { WEBHOOK_LISTEN: new URL(url).host, WEBHOOK_URL: url },
    });
    await start();
    await agent.registered();
    // The platform's time is known from the token response.
    await push([0]);
    await arrived(1);
    let event = 0;
    for (const movedMs of [-DAY_MS, DAY_MS]) {
      clock.move(movedMs);
      await deliver(url, ++event, HOUR_MS);
      await deliver(url, ++event, 0);
    }
    await deliver(url, ++event, -HOUR_MS);
    const finished = () => agent.logged('reaction.done').length + agent.logged('reaction.expired').length;
    await agent.until(() => finished() === event, 'all events are handled');
    expect(readFileSync(ran, 'utf8').split('\n').filter(Boolean).sort()).toEqual(['2', '4', '5']);
    expect(agent.logged('reaction.expired').map(({ clock: used }) => used)).toEqual(['platform', 'platform']);
    expect(agent.logged('reaction.ahead')).toMatchObject([{ clock: 'platform' }]);
  });

  async function deliver(url: string, value: number, ageMs: number): Promise<void> {
    const body = JSON.stringify({
      event_type: 'threshold_reached',
      occurred_at: new Date(Date.now() - ageMs).toISOString(),
      content: {
        asset: { id: 881 },
        // A later event for an object takes precedence over an earlier one, so each event has its own object.
        instrumentation: { id: 4_710 + value },
        data: { key: 'a', timestamp: new Date().toISOString(), value },
        threshold: { type: 'high', value: 50 },
      },
    });
    const signature = createHmac('sha256', platform.webhooks()[0]!.secret).update(body).digest('hex');
    const headers = { 'Content-Type': 'application/json', 'X-Hub-Signature-Sha256': `sha256=${signature}` };
    expect((await fetch(url, { method: 'POST', body, headers })).status).toBe(204);
  }
});
