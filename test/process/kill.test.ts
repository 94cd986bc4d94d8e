import { afterEach, beforeEach, describe, expect, it } from 'vitest';
import { Sandbox } from '../../src/sandbox/sandbox.ts';
import { ManualClock } from '../doubles/manual-clock.ts';
import { AgentProcess } from './agent-process.ts';

/** Assets of the sandbox's plant that the technical user may post to. */
const ASSETS = [881, 882, 883, 884, 885, 886];
const TAGS = `tags:\n${ASSETS.map((asset) => `  T-${asset}: { asset: ${asset}, values: { a: { unit: 1 }, b: { unit: 1 } } }\n`).join('')}`;

let sandbox: Sandbox;
let agent: AgentProcess;

beforeEach(async () => {
  sandbox = new Sandbox({ limits: { perUser: 0, perApiKey: 0, perAddress: 0 } });
  await sandbox.start();
  // Short lanes, so that logs, segments and both lanes are all at work when the blow falls.
  agent = new AgentProcess(sandbox.url, { tags: TAGS, env: { POST_INTERVAL: '100ms', POST_MAX_VALUES: '40' } });
});
afterEach(async () => {
  await agent.dispose();
  await sandbox.stop();
});

/** A plant that pushes without a pause and remembers what was acknowledged, and what was only offered. */
class Plant {
  readonly acknowledged = new Map<string, { timestampMs: number; value: number }[]>();
  readonly offered = new Map<string, { timestampMs: number; value: number }[]>();
  #timeMs = 1_700_000_000_000;
  #running = true;
  readonly #done: Promise<unknown>;

  constructor() {
    this.#done = Promise.all([0, 1, 2].map(() => this.#push()));
  }

  async #push(): Promise<void> {
    while (this.#running) {
      const timestampMs = this.#timeMs++;
      const values = ASSETS.flatMap((asset) =>
        ['a', 'b'].map((key) => ({
          tag: `T-${asset}`,
          key,
          value: (timestampMs % 100_000) / 100,
          timestamp: timestampMs,
        })),
      );
      for (const asset of ASSETS) note(this.offered, asset, timestampMs);
      const answer = await agent.push(values).catch(() => undefined);
      if (answer?.status === 204) for (const asset of ASSETS) note(this.acknowledged, asset, timestampMs);
      // A daemon that is down is asked again, without burning a core.
      else await new Promise((resolve) => setTimeout(resolve, 10));
    }
  }

  async stop(): Promise<void> {
    this.#running = false;
    await this.#done;
  }
}

function note(where: Plant['acknowledged'], asset: number, timestampMs: number): void {
  for (const key of ['a', 'b']) {
    const list = where.get(`${asset}/${key}`) ?? [];
    list.push({ timestampMs, value: (timestampMs % 100_000) / 100 });
    where.set(`${asset}/${key}`, list);
  }
}

describe('kill -9 at any moment', () => {
  it.each([1, 2])('during ingest, outage and drain loses and invents nothing, seed %i', async (seed) => {
    const chance = new ManualClock(0, seed);
    await agent.start();
    const plant = new Plant();
    for (let blow = 0; blow < 8; blow++) {
      if (blow % 3 === 1) await sandbox.goOffline('refuse');
      if (blow % 3 === 2) await sandbox.goOnline();
      await new Promise((resolve) => setTimeout(resolve, 100 + chance.random() * 900));
      expect(await agent.end('SIGKILL')).toBe('SIGKILL');
      await agent.start();
    }
    await sandbox.goOnline();
    await plant.stop();
    await agent.until(async () => (await agent.metric('tagferry_buffer_values')) === 0, 'the buffer is empty', 90_000);
    let acknowledged = 0;
    for (const asset of ASSETS) {
      for (const key of ['a', 'b']) {
        const sure = plant.acknowledged.get(`${asset}/${key}`) ?? [];
        const offered = plant.offered.get(`${asset}/${key}`) ?? [];
        acknowledged += sure.length;
        expect(sandbox.values.compare(asset, key, sure).missing).toEqual([]);
        const { invented, different } = sandbox.values.compare(asset, key, offered);
        expect({ invented, different }).toEqual({ invented: [], different: [] });
      }
    }
    expect(acknowledged).toBeGreaterThan(100);
  });
});
