import { describe, expect, it, vi } from 'vitest';
import { Sandbox } from '../../src/sandbox/sandbox.ts';
import { ManualClock } from '../doubles/manual-clock.ts';

const DAY_MS = 24 * 3_600_000;
/** 16 attempts each: 160,000 sends. */
const DELIVERIES = 10_000;

describe('spec 6.1: the retry schedule', () => {
  it('of ten thousand deliveries that always fail has 16 attempts, growing delays, and three days in the mean', async () => {
    const sandbox = new Sandbox({
      clock: new ManualClock(),
      mostDeliveries: 2 * DELIVERIES,
      sendWebhook: async () => 500,
    });
    const webhook = sandbox.webhookBook.add({
      application: 3,
      url: 'https://client.example/',
      event_types: ['node_appeared'],
      disabled: false,
      secret: 'x',
    });
    const lastMs = new Float64Array(DELIVERIES + 1);
    const totalMs = new Float64Array(DELIVERIES + 1);
    let shrunk = 0;
    let attempts = 0;
    sandbox.onDelivery(({ delivery: { id }, nextInMs }) => {
      attempts++;
      if (nextInMs === undefined) return;
      if (nextInMs <= lastMs[id]!) shrunk++;
      lastMs[id] = nextInMs;
      totalMs[id]! += nextInMs;
    });
    for (let i = 0; i < DELIVERIES; i++) {
      sandbox.announcer.announce({ type: 'node_appeared', audience: () => true, content: () => ({ node: { id: i } }) });
    }
    for (let round = 1; round <= 16; round++) {
      await vi.waitFor(() => expect(attempts).toBe(round * DELIVERIES), { timeout: 60_000, interval: 20 });
      // Long enough for every delay of this round, and short of the two weeks that disable the webhook.
      sandbox.clock.advance(Math.max(...lastMs.slice(1)) + 1);
    }
    await sandbox.stop();
    const days = [...totalMs.slice(1)].map((ms) => ms / DAY_MS).sort((a, b) => a - b);
    const at = (share: number) => days[Math.floor(share * (DELIVERIES - 1))]!.toFixed(2);
    const mean = days.reduce((sum, one) => sum + one, 0) / DELIVERIES;
    process.stdout.write(
      `retry schedule of ${DELIVERIES} deliveries, days: least ${at(0)}, 5 % ${at(0.05)}, median ${at(0.5)}, 95 % ${at(0.95)}, most ${at(1)}, mean ${mean.toFixed(3)}\n`,
    );
    expect(attempts).toBe(16 * DELIVERIES);
    expect(sandbox.deliveries(webhook.id).every(({ status }) => status === 'failed')).toBe(true);
    expect(shrunk).toBe(0);
    expect(mean).toBeGreaterThan(2.98);
    expect(mean).toBeLessThan(3.02);
    expect(days[0]).toBeGreaterThanOrEqual(2.25);
    expect(days.at(-1)).toBeLessThanOrEqual(3.75);
  }, 120_000);
});
