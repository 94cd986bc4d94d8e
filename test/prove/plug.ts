import { copyFileSync, existsSync, mkdirSync, readdirSync, rmSync } from 'node:fs';
import { dirname, join } from 'node:path';
import { pathToFileURL } from 'node:url';
import { freePort } from '../../src/base/port-claim.ts';
import { Sandbox } from '../../src/sandbox/sandbox.ts';
import { compileDiskLayer, pullThePlug, readJournal } from '../host/faults/disk-fault.ts';
import { GatewayProcess } from '../host/gateway-process.ts';
import { ManualClock } from '../unit/doubles/manual-clock.ts';
import { EventsWay, type EventVerdict } from './events-way.ts';
import { FarEnd } from './far-end.ts';
import { Oracle, summed, type Verdict } from './oracle.ts';
import { PushWay } from './ways/push-way.ts';
import { pause, Readings } from './ways/way.ts';

const NORMAL_SYNC = join(import.meta.dirname, 'normal-sync.mjs');
const ASSETS = { http: 881, ndjson: 882, line: 883 };
const MAX_POST = 500;
const CONCURRENCY = 4;

export interface PlugReport {
  cuts: number;
  values: Verdict;
  allowedRepeats: number;
  events: EventVerdict;
}

/**
 * Simulates power failures. A layer below the databases records writes and syncs. At a cut the agent is killed, and each
 * file keeps only its synced content. With `isNormal`, the databases are opened with `synchronous=NORMAL`, which must
 * lose values: the control of this test.
 */
export async function pullPlug(options: { seed: number; cuts: number; isNormal?: boolean }): Promise<PlugReport> {
  const chance = new ManualClock(0, options.seed);
  const sandbox = new Sandbox({ limits: { perUser: 0, perApiKey: 0, perAddress: 0 } });
  await sandbox.start();
  const farEnd = new FarEnd(sandbox, MAX_POST, CONCURRENCY);
  const oracle = new Oracle();
  const agent = new GatewayProcess(sandbox.url);
  const events = await EventsWay.open(sandbox, agent.folder);
  const readings = new Readings(Date.now() - 3_600_000, () => chance.random());
  const context = { oracle, readings, folder: agent.folder };
  const names = ['http', 'ndjson', 'line'] as const;
  const ways = names.map((name) => PushWay.to(agent, name, ASSETS[name], context, farEnd));
  const port = await freePort();
  agent.write(sandbox.url, {
    env: {
      POST_MAX_VALUES: String(MAX_POST),
      POST_CONCURRENCY: String(CONCURRENCY),
      WEBHOOK_LISTEN: `127.0.0.1:${port}`,
      WEBHOOK_URL: `http://127.0.0.1:${port}/webhook`,
      WEBHOOK_POLL: '5s',
    },
    tags: `tags:\n${ways.map(({ tags }) => tags).join('')}`,
    reactions: events.reactions,
  });
  const journal = join(agent.folder, 'journal');
  const image = join(agent.folder, 'image');
  mkdirSync(image);
  const environment = {
    LD_PRELOAD: compileDiskLayer(),
    DISK_LAYER_PATH: agent.state,
    DISK_LAYER_JOURNAL: journal,
    ...(options.isNormal ? { NODE_OPTIONS: `--import=${pathToFileURL(NORMAL_SYNC).href}` } : {}),
  };
  try {
    await agent.start(environment);
    await agent.registered();
    for (const way of ways) way.produce(400);
    events.produce(5);
    for (let cut = 0; cut < options.cuts; cut++) {
      // Mostly during an outage, because values on the platform can no longer be lost.
      if (cut % 3 < 2) await sandbox.goOffline('refuse');
      else await sandbox.goOnline();
      const before = ways.reduce((sum, { acknowledged }) => sum + acknowledged, 0);
      await agent.until(
        () => ways.reduce((sum, { acknowledged }) => sum + acknowledged, 0) > before + 100,
        'values are acknowledged',
      );
      await pause(chance.random() * 1_500);
      await agent.end('SIGKILL');
      farEnd.crashed();
      cutOff(agent.state, journal, image);
      await agent.start(environment);
    }
    await sandbox.goOnline();
    await Promise.all([...ways.map((way) => way.rest()), events.rest()]);
    const isEmpty = async () => (await agent.metric('tagferry_buffer_values')) === 0;
    await agent.until(isEmpty, 'the buffer is empty', 90_000);
    const judged = await (options.isNormal ? events.judge(5_000) : events.judge());
    const values = summed(oracle.judge(sandbox).values());
    return { cuts: options.cuts, values, allowedRepeats: farEnd.allowed, events: judged };
  } finally {
    await Promise.allSettled([...ways.map((way) => way.close()), events.rest()]);
    await agent.dispose();
    await sandbox.stop();
  }
}

/**
 * Replaces the databases with the worst result of a power failure at this moment. `image` contains their content at the
 * previous start, and afterwards at the next one.
 */
function cutOff(state: string, journal: string, image: string): void {
  if (existsSync(journal)) pullThePlug(readJournal(dirname(journal)).get(state) ?? [], image, image);
  rmSync(journal, { force: true });
  for (const name of readdirSync(state)) {
    if (!/\.db(-wal|-shm)?$/.test(name)) continue;
    const kept = join(image, name);
    if (!name.endsWith('-shm') && existsSync(kept)) copyFileSync(kept, join(state, name));
    // Shared memory, or a file that was never synced.
    else rmSync(join(state, name));
  }
}
