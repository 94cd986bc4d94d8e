import { describe, expect, it } from 'vitest';
import { Sandbox } from '../../../src/sandbox/sandbox.ts';
import { FIRST_DELAY_MS, retryDelayMs } from '../../../src/sandbox/webhooks/delivery-engine.ts';
import { ManualClock } from '../doubles/manual-clock.ts';

const DAY_MS = 24 * 3_600_000;
const WEBHOOKS = 100;
const EACH = 1000;
const DELIVERIES = WEBHOOKS * EACH;
/** Receivers that always fail, and receivers that recover. The others fail every second time. */
const DEAD = 30;
const RECOVERING = 40;

/** Growth of the time steps, so that later steps are longer. */
const LOOK_GROWTH = 1.05;

describe('platform 6.1: retry schedule', () => {
  it('stays within its bounds in 100,000 deliveries', async () => {
    const random = new ManualClock(0, 7);
    const sandbox = new Sandbox({
      clock: new ManualClock(),
      maxDeliveries: 2 * DELIVERIES,
      sendWebhook: async ({ url }) => answerOf(Number(new URL(url).pathname.slice(1))),
    });
    const startMs = sandbox.clock.wallMs();
    const backMs = new Map<number, number>();
    for (let receiver = 0; receiver < WEBHOOKS; receiver++) {
      if (receiver >= DEAD && receiver < DEAD + RECOVERING) backMs.set(receiver, random.random() * 2 * DAY_MS);
    }
    const answerOf = (receiver: number): number => {
      if (receiver < DEAD) return 500;
      const back = backMs.get(receiver);
      if (back !== undefined) return sandbox.clock.wallMs() - startMs < back ? 503 : 204;
      return random.random() < 0.5 ? 500 : 204;
    };
    for (let receiver = 0; receiver < WEBHOOKS; receiver++) {
      sandbox.webhookRegistry.add({
        application: 3,
        url: `https://client.example/${receiver}`,
        event_types: ['node_appeared'],
        disabled: false,
        secret: `s${receiver}`,
      });
    }

    // Observations of each delivery, checked as they occur.
    const attempts = new Uint8Array(DELIVERIES + 1);
    const lastDelayMs = new Float64Array(DELIVERIES + 1);
    const dueMs = new Float64Array(DELIVERIES + 1);
    const totalMs = new Float64Array(DELIVERIES + 1);
    const firstDelays = new Set<number>();
    const wrong: string[] = [];
    let sends = 0;
    sandbox.onDelivery(({ delivery: { id }, answer, nextInMs }) => {
      sends++;
      const nth = ++attempts[id]!;
      const nowMs = sandbox.clock.wallMs();
      if (nowMs < Math.floor(dueMs[id]!)) wrong.push(`${id} was sent ${dueMs[id]! - nowMs} ms too early`);
      if (nextInMs === undefined) {
        if (answer !== 204 && nth !== 16) wrong.push(`${id} was given up after ${nth}`);
        return;
      }
      if (answer === 204 || nth >= 16) wrong.push(`${id} would be sent again after ${nth} and ${answer}`);
      const middleMs = FIRST_DELAY_MS * 2 ** (nth - 1);
      if (nextInMs < 0.75 * middleMs || nextInMs > 1.25 * middleMs) wrong.push(`${id}: delay ${nth} of ${nextInMs} ms`);
      if (nextInMs <= lastDelayMs[id]!) wrong.push(`${id}: delay ${nth} does not grow`);
      if (nth === 1) firstDelays.add(nextInMs);
      lastDelayMs[id] = nextInMs;
      dueMs[id] = nowMs + nextInMs;
      totalMs[id]! += nextInMs;
    });

    for (let i = 0; i < EACH; i++) {
      sandbox.announcer.announce({ type: 'node_appeared', audience: () => true, content: () => ({ node: { id: i } }) });
    }
    const quiet = async () => {
      do await new Promise((resolve) => setImmediate(resolve));
      while (!sandbox.isDeliveryIdle);
    };
    await quiet();
    for (let elapsedMs = 5_000; elapsedMs < 5 * DAY_MS; elapsedMs *= LOOK_GROWTH) {
      sandbox.clock.advance(startMs + elapsedMs - sandbox.clock.wallMs());
      await quiet();
    }

    const deliveries = sandbox.deliveries();
    const kindOf = (webhook: number) =>
      webhook <= DEAD ? 'dead' : webhook <= DEAD + RECOVERING ? 'recovering' : 'flaky';
    const counts: Record<string, Record<string, number>> = {};
    const histogram = new Map<string, number[]>();
    for (const { id, webhook, status } of deliveries) {
      const kind = kindOf(webhook);
      counts[kind] = { ...counts[kind], [status]: (counts[kind]?.[status] ?? 0) + 1 };
      const bars = histogram.get(kind) ?? new Array<number>(17).fill(0);
      bars[attempts[id]!]!++;
      histogram.set(kind, bars);
    }
    const days = deliveries
      .filter(({ webhook }) => webhook <= DEAD)
      .map(({ id }) => totalMs[id]! / DAY_MS)
      .sort((a, b) => a - b);
    const at = (share: number) => days[Math.floor(share * (days.length - 1))]!;
    const mean = days.reduce((sum, one) => sum + one, 0) / days.length;
    const lines = [...histogram].map(([kind, bars]) => {
      return `  ${kind.padEnd(10)} attempts 1..16: ${bars.slice(1).join(' ')} (${JSON.stringify(counts[kind])})`;
    });
    process.stdout.write(
      `retry schedule of ${DELIVERIES} deliveries in ${sends} sends\n${lines.join('\n')}\n  16 attempts took, in days: ${[0, 0.05, 0.25, 0.5, 0.75, 0.95, 1].map((share) => `${share * 100} % ${at(share).toFixed(2)}`).join(', ')}, mean ${mean.toFixed(3)}\n`,
    );

    expect(wrong.slice(0, 5)).toEqual([]);
    expect(deliveries).toHaveLength(DELIVERIES);
    expect(deliveries.some(({ status }) => status === 'pending')).toBe(false);
    // Dead receivers: 16 attempts, then failed. Others: delivered, except one in 65,536 of the flaky ones.
    expect(counts.dead).toEqual({ failed: DEAD * EACH });
    expect(histogram.get('dead')![16]).toBe(DEAD * EACH);
    expect(counts.recovering).toEqual({ delivered: RECOVERING * EACH });
    expect(counts.flaky!.delivered).toBeGreaterThan(0.999 * (WEBHOOKS - DEAD - RECOVERING) * EACH);
    // "random": delays differ, so that a recovered receiver does not receive all deliveries at once.
    expect(firstDelays.size).toBeGreaterThan(0.8 * DELIVERIES);
    // "about 3 days in total".
    expect(mean).toBeGreaterThan(2.98);
    expect(mean).toBeLessThan(3.02);
    expect(at(0)).toBeGreaterThanOrEqual(2.25);
    expect(at(1)).toBeLessThanOrEqual(3.75);
    expect(sandbox.webhooks().every(({ disabled }) => !disabled)).toBe(true);
    await sandbox.stop();
  }, 300_000);

  it('has delays for 15 failures and none after the sixteenth attempt', () => {
    const delays = Array.from({ length: 16 }, (_, index) => retryDelayMs(index + 1, () => 0.5));
    expect(delays.slice(0, 15).every((delay) => delay !== undefined)).toBe(true);
    expect(delays[15]).toBeUndefined();
    expect(delays.slice(0, 15).reduce((sum: number, delay) => sum + delay!, 0)).toBeCloseTo(3 * DAY_MS, 3);
  });
});
