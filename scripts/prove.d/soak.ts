import { execFileSync } from 'node:child_process';
import { WHOLE_FAULTS } from '../../test/prove/faults.ts';
import { summed, type Verdict } from '../../test/prove/oracle.ts';
import { pause } from '../../test/prove/ways/way.ts';
import { World } from '../../test/prove/world.ts';

const PER_SECOND = 1_000;
const SAMPLE_MS = 5_000;
/** Time between two faults. */
const CALM_MS = { from: 60_000, to: 180_000 };
/** Interval between checks, which limit the memory used for values. */
const JUDGED_EVERY_MS = 10 * 60_000;

export interface Sample {
  /** Seconds since the start. */
  s: number;
  memoryMb: number;
  handles: number;
  stateMb: number;
  syncs: number;
  /** 99th percentile of the time to a 204, and time until a value is on the platform. */
  answerMs: number;
  arrivedMs: number;
}

export interface SoakReport {
  seed: number;
  lengthS: number;
  values: Verdict;
  allowedRepeats: number;
  faults: { s: number; fault: string; freshMs: number }[];
  samples: Sample[];
  /** Reason for ending early; earlier measurements remain valid. */
  endedBy?: string;
}

/** Runs one agent at 1,000 values/s over all paths, with a fault every few minutes. */
export async function soak(
  seed: number,
  lengthMs: number,
  chance: () => number,
  say: (what: string) => void,
): Promise<SoakReport> {
  const world = await World.open({ chance, isWhole: true });
  const began = performance.now();
  const seconds = () => Math.round((performance.now() - began) / 1000);
  const report: SoakReport = { seed, lengthS: 0, values: summed([]), allowedRepeats: 0, faults: [], samples: [] };
  let sampling: NodeJS.Timeout | undefined;
  try {
    world.launch();
    await world.ready();
    world.produce(PER_SECOND);
    await world.opcua?.begun();
    let isBusy = false;
    sampling = setInterval(() => {
      if (isBusy) return;
      isBusy = true;
      void sample(world, seconds())
        .then((one) => one && report.samples.push(one))
        .finally(() => {
          isBusy = false;
        });
    }, SAMPLE_MS);
    const names = Object.keys(WHOLE_FAULTS).sort();
    let judgedMs = performance.now();
    while (performance.now() - began < lengthMs) {
      const left = lengthMs - (performance.now() - began);
      await pause(Math.min(left, CALM_MS.from + chance() * (CALM_MS.to - CALM_MS.from)));
      const fault = names[Math.floor(chance() * names.length)]!;
      const { begin, end, holdMs } = WHOLE_FAULTS[fault]!;
      await begin(world);
      await pause(holdMs[0] + chance() * (holdMs[1] - holdMs[0]));
      await end?.(world);
      const freshMs = Math.round(await world.freshMs());
      report.faults.push({ s: seconds(), fault, freshMs });
      say(`${seconds()} s: ${fault}; a fresh value after ${freshMs} ms`);
      if (performance.now() - judgedMs > JUDGED_EVERY_MS) {
        await judge(world, report);
        judgedMs = performance.now();
        world.produce(PER_SECOND);
      }
    }
    await judge(world, report);
  } catch (error) {
    report.endedBy = error instanceof Error ? error.message : String(error);
  } finally {
    report.lengthS = seconds();
    report.allowedRepeats = world.farEnd.allowed;
    clearInterval(sampling);
    await world.close().catch((error: Error) => {
      report.endedBy = [report.endedBy, error.message].filter(Boolean).join('; ');
    });
  }
  return report;
}

async function judge(world: World, report: SoakReport): Promise<void> {
  await world.ready();
  await world.drain();
  report.values = summed([report.values, ...world.oracle.judge(world.sandbox).values()]);
}

async function sample(world: World, s: number): Promise<Sample | undefined> {
  const { agent, disk } = world;
  const latencies = world.ways.flatMap((way) => ('latencies' in way ? (way.latencies as number[]).splice(0) : []));
  latencies.sort((a, b) => a - b);
  const began = performance.now();
  try {
    await Promise.race([world.freshMs(), pause(SAMPLE_MS).then(() => Promise.reject(new Error('late')))]);
  } catch {
    // No value arrives during a fault; recovery is measured separately.
    return undefined;
  }
  return {
    s,
    memoryMb: agent.memoryMb(),
    handles: agent.handles(),
    stateMb: Number(execFileSync('du', ['-sk', disk.state], { encoding: 'utf8' }).split('\t')[0]) / 1024,
    syncs: world.diskCounts().syncs,
    answerMs: Math.round(latencies[Math.floor(latencies.length * 0.99)] ?? 0),
    arrivedMs: Math.round(performance.now() - began),
  };
}
