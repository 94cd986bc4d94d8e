import { Sandbox } from '../../../src/sandbox/sandbox.ts';
import { VALUE_TAGS, ValuePlant } from '../../e2e/harness/value-plant.ts';
import { ManualClock } from '../../unit/doubles/manual-clock.ts';
import { Strangers } from '../../unit/webhook/parts/strangers.ts';
import { EventPlant } from '../webhook/event-plant.ts';

/** Actions and findings of one round. */
export interface RoundReport {
  did: Record<'kills' | 'outages' | 'rotations' | 'reloads' | 'tricks', number>;
  values: number;
  events: number;
  reactions: number;
  /** Peak agent memory, in MB. */
  memoryMb: number;
  /** Problems; empty on success. */
  wrong: string[];
  /** Folder with the agent files, kept on failure. */
  folder: string | undefined;
  /** End of the agent's output, on failure. */
  output: string;
}

/** Interval between two faults: long enough for a startup, short enough to interrupt some of them. */
const BETWEEN_MS = { from: 100, to: 2_500 };
/** Time limit for remaining deliveries and reactions after the faults. */
const PEACE_MS = 60_000;
const TRICKS_AT_ONCE = 5;
/** Hostile clients disconnect after this number of attacks, because otherwise they would occupy every connection. */
const TRICKS_A_VISIT = 40;
/** MemoryMax in the shipped limits, plus the part of the runtime binary that is accounted to another group. */
const MOST_MEMORY_MB = 250;

/**
 * The accelerated lifetime of a gateway: pushed values, events, a hostile client, and random kill -9, platform outages,
 * secret rotations and reloads. Afterwards, everything is delivered and completed, and counted at both ends.
 */
export async function runRound(seed: number, lengthMs: number, signal: AbortSignal): Promise<RoundReport> {
  const chance = new ManualClock(0, seed);
  const did = { kills: 0, outages: 0, rotations: 0, reloads: 0, tricks: 0 };
  const report: RoundReport = {
    did,
    values: 0,
    events: 0,
    reactions: 0,
    memoryMb: 0,
    wrong: [],
    folder: undefined,
    output: '',
  };
  const sandbox = new Sandbox({ limits: { perUser: 0, perApiKey: 0, perAddress: 0 } });
  await sandbox.start();
  const plant = await EventPlant.at(sandbox, { POST_INTERVAL: '200ms', WEBHOOK_POLL: '5s' }, VALUE_TAGS);
  const strangers = new Strangers(
    () => plant.port,
    () => chance.random(),
    'not-the-secret',
  );
  let values: ValuePlant | undefined;
  let isAway = false;
  try {
    await plant.begin();
    values = new ValuePlant(plant.agent, 40);
    plant.stream(40);
    const happen = {
      kills: async () => {
        await plant.kill();
        await plant.agent.start();
      },
      outages: async () => {
        isAway = !isAway;
        if (isAway) await sandbox.goOffline(chance.random() < 0.5 ? 'refuse' : 'drop');
        else await sandbox.goOnline();
      },
      // The next fault is sometimes a kill during the current one.
      rotations: async () => void plant.ask('webhook/rotate-secret').catch(() => {}),
      reloads: async () => plant.agent.signal('SIGHUP'),
    };
    const mix = ['kills', 'kills', 'kills', 'outages', 'rotations', 'reloads'] as const;
    const end = performance.now() + lengthMs;
    while (performance.now() < end && !signal.aborted) {
      const pause = BETWEEN_MS.from + chance.random() ** 3 * (BETWEEN_MS.to - BETWEEN_MS.from);
      const until = performance.now() + pause;
      while (performance.now() < until) {
        for (let i = 0; i < TRICKS_AT_ONCE; i++) strangers.play();
        did.tricks += TRICKS_AT_ONCE;
        if (did.tricks % TRICKS_A_VISIT === 0) strangers.leave();
        await new Promise((resolve) => setTimeout(resolve, 50));
      }
      report.memoryMb = Math.max(report.memoryMb, plant.agent.memoryMb());
      const what = mix[Math.floor(chance.random() * mix.length)]!;
      did[what]++;
      await happen[what]();
    }
    strangers.leave();
    await sandbox.goOnline();
    await Promise.all([values.stop(), plant.endStream()]);
    await plant.settle(PEACE_MS);
    const isDrained = async () => (await plant.agent.metric('tagferry_buffer_values')) === 0;
    await plant.agent.until(isDrained, 'the buffer is empty', PEACE_MS);
    judge(report, plant, { ...values.count(sandbox.values) }, await plant.count());
  } catch (error) {
    report.wrong.push(error instanceof Error ? error.message.split('\n', 1)[0]! : String(error));
  } finally {
    strangers.leave();
    await Promise.all([values?.stop(), plant.endStream()]);
    if (report.wrong.length > 0) {
      report.output = plant.agent.output.slice(-4_000);
      report.folder = plant.agent.folder;
      await plant.agent.end('SIGKILL');
    } else await plant.agent.dispose();
    await sandbox.stop();
  }
  return report;
}

function judge(
  report: RoundReport,
  plant: EventPlant,
  values: Record<string, number>,
  events: Record<string, readonly number[]>,
): void {
  const { acknowledged, ...wrong } = values;
  report.values = acknowledged ?? 0;
  report.events = plant.sent.size;
  report.reactions = plant.ran().length;
  for (const [what, count] of Object.entries(wrong)) if (count > 0) report.wrong.push(`${count} values ${what}`);
  for (const [what, numbers] of Object.entries(events)) {
    if (numbers.length > 0) report.wrong.push(`${numbers.length} events ${what} (${numbers.slice(0, 10).join(', ')})`);
  }
  if (report.values === 0 || report.events === 0)
    report.wrong.push('nothing was acknowledged: the round shows nothing');
  if (report.memoryMb > MOST_MEMORY_MB) report.wrong.push(`${report.memoryMb} MB of memory, above ${MOST_MEMORY_MB}`);
  const faults = ['reaction.fault', 'store.corrupt', 'agent.fatal'].filter(
    (event) => plant.agent.logged(event).length > 0,
  );
  if (faults.length > 0) report.wrong.push(`the log says ${faults.join(', ')}`);
  if (plant.agent.output.includes(plant.sandbox.webhooks()[0]!.secret)) report.wrong.push('a secret is in the log');
}
