import { mkdirSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import type { CrashPoint } from '../../../src/base/crash-points.ts';
import { CHECKOUT } from '../../host/made-once.ts';
import { pause } from '../ways/way.ts';
import type { CrashPlan } from './crash-plan.ts';
import { ASSETS, CrashWorld } from './crash-world.ts';
import { type CrashCounts, type Evidence, judge, wrongCounts } from './judge.ts';

export interface CrashRun {
  point: CrashPoint;
  effect: CrashPlan['effect'];
  /** Announcement at which the effect happens, for each start of the agent. Later starts have no plan. */
  nth: readonly number[];
}

export interface CrashReport {
  point: CrashPoint;
  effect: CrashPlan['effect'];
  nth: readonly number[];
  /** Number of effects that happened. */
  fired: number;
  acknowledged: number;
  events: number;
  counts: CrashCounts | undefined;
  wrong: string[];
}

const POISON_AFTER_MS = 1_000;
const PURGE_AFTER_MS = 2_500;
const DAMAGE_AFTER_MS = 2_000;
/** Merges begin after about twelve flushes, one per second. */
const REACHED_WITHIN_MS = 60_000;
const DISK_FULL_MS = 3_000;
const AFTERWARDS_MS = 1_000;
const STALLED_MS = 30_000;
/** Settled and quarantined values are on disk after this time. */
const QUIET_MS = 3_000;

/**
 * Runs one scenario with an effect at one crash point: values of four assets of which one is unavailable, one contains a
 * poisoned value and one is purged, and events that start actions. The agent is killed once more at the end, so that the
 * judge sees what a further start brings back.
 */
export async function crashAt(run: CrashRun): Promise<CrashReport> {
  const { point, effect, nth } = run;
  const world = await CrashWorld.open();
  const { platform } = world;
  try {
    const plans = nth.map((n) => world.planOf({ point, effect, nth: n }));
    const isRescue = point === 'rescue.copy';
    if (!isRescue) world.plans = plans;
    const failing = platform.addFault({ method: 'POST', asset: ASSETS.failing, status: 503 });
    const untilPurged = platform.addFault({ method: 'POST', asset: ASSETS.purged, status: 503 });
    world.launch();
    await world.until(() => platform.webhooks().length > 0, 'the webhook is registered');
    world.hideDeliveries();
    for (const asset of Object.values(ASSETS)) world.push(asset);
    world.sendEvents();
    await pause(POISON_AFTER_MS);
    // A full disk rejects the value until it is freed.
    const poisoned = world.pushPoison();
    poisoned.catch(() => {});
    const freed = whenFull(world, effect);
    await pause(PURGE_AFTER_MS - POISON_AFTER_MS);
    await world.restPush(ASSETS.purged);
    await world.purge(ASSETS.purged);
    platform.removeFault(untilPurged);
    world.push(ASSETS.purged);
    if (isRescue) {
      await poisoned;
      await pause(DAMAGE_AFTER_MS);
      world.plans = plans;
      await world.restartWithDamage();
    }
    await world.until(() => world.fired > 0, 'the point is reached', REACHED_WITHIN_MS).catch(() => {});
    await freed;
    await pause(AFTERWARDS_MS);
    await world.restAll();
    await poisoned;
    platform.removeFault(failing);
    await world.drain(STALLED_MS);
    await world.quarantined();
    await pause(QUIET_MS);
    // From now on the platform accepts all values.
    platform.clearFaults();
    world.hideDeliveries();
    world.plans = [];
    await world.killOnce();
    await world.drain(STALLED_MS);
    await pause(QUIET_MS);
    const evidence = world.evidence(await world.quarantined());
    const counts = judge(evidence);
    const { fired } = world;
    const wrong = [...(fired === 0 ? ['point not reached'] : []), ...world.unexpected, ...wrongCounts(counts)];
    if (wrong.length > 0) keepEvidence(run, evidence, world.output);
    const acknowledged = evidence.pushed.filter(({ isAcknowledged }) => isAcknowledged).length;
    return { ...run, fired, acknowledged, events: evidence.events.acknowledged.size, counts, wrong };
  } finally {
    await world.close();
  }
}

/** Keeps the evidence and the agent's log of a failed run in `.cache/crash`. */
function keepEvidence({ point, effect, nth }: CrashRun, evidence: Evidence, output: string): void {
  const folder = join(CHECKOUT, '.cache/crash', `${point}-${effect}-${nth.join('+')}`);
  mkdirSync(folder, { recursive: true });
  const plain = (_: string, value: unknown) => (value instanceof Set ? [...value] : value);
  writeFileSync(join(folder, 'evidence.json'), JSON.stringify(evidence, plain));
  writeFileSync(join(folder, 'agent.log'), output);
}

/** Frees the disk some time after it was filled. */
async function whenFull(world: CrashWorld, effect: CrashPlan['effect']): Promise<void> {
  if (effect !== 'full') return;
  await world.until(() => world.fired > 0, 'the disk is full', 2 * REACHED_WITHIN_MS).catch(() => {});
  await pause(DISK_FULL_MS);
  world.freeDisk();
}
