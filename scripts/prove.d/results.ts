/** Results of runs. Next to the page, one file per part contains one line per run with the data that the page shows. */
import { existsSync, mkdirSync, readFileSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import type { CrashReport } from '../../test/prove/crash/crash-run.ts';
import type { DayReport } from '../../test/prove/day.ts';
import type { CutsReport } from '../../test/prove/machine/cuts.ts';
import type { PeerReport } from '../../test/prove/machine/peers.ts';
import type { PlugReport } from '../../test/prove/plug.ts';
import type { MonthReport } from '../../test/prove/session-month.ts';
import type { SoakReport } from './soak.ts';

export const PARTS = [
  'faults',
  'stops',
  'reloads',
  'mixed',
  'plug',
  'crash',
  'session',
  'machine',
  'peers',
  'soak',
] as const;
export type Part = (typeof PARTS)[number];

/** Parts whose runs are days with faults. */
type DayPart = 'faults' | 'stops' | 'reloads' | 'mixed';

interface Run {
  /** Name within the part. */
  name: string;
  /** End of the run, ISO 8601. */
  at: string;
  tookMs?: number;
  /** Runnable processes per core in the last minute. */
  load?: number;
  machine?: { cores: number; gib: number };
  /** Failures; empty if the run succeeded. */
  wrong: string[];
}

/** A completed run. */
export type Result = Run &
  (
    | { [P in DayPart]: { part: P; report: DayReport } }[DayPart]
    | { part: 'plug'; report: PlugReport; isControl: boolean }
    | { part: 'crash'; report: CrashReport }
    | { part: 'session'; report: MonthReport }
    | { part: 'machine'; report: CutsReport; isControl: boolean; isPromised: boolean; disks: string }
    | { part: 'peers'; report: PeerReport }
    | { part: 'soak'; report: SoakReport }
  );

/** A completed or failed run. */
export type Kept = Result | (Run & { part: Part; report?: undefined });

/** A planned run with its duration in minutes on two idle cores. */
export interface Task {
  part: Part;
  name: string;
  minutes: number;
  run(say: (what: string) => void): Promise<{ wrong: string[]; report: Result['report'] }>;
}

/** Maximum number of soak samples shown on the page. */
const MAX_SAMPLES = 360;

/** Returns the results that the page shows. */
export function readShown(folder: string): Kept[] {
  return PARTS.flatMap((part) => {
    const file = join(folder, `${part}.jsonl`);
    if (!existsSync(file)) return [];
    return readFileSync(file, 'utf8')
      .split('\n')
      .filter(Boolean)
      .map((line) => JSON.parse(line) as Kept);
  });
}

/** Replaces results with the same names and keeps all others. */
export function showResults(folder: string, results: readonly Kept[]): void {
  mkdirSync(folder, { recursive: true });
  const there = readShown(folder);
  const isNew = (result: Kept) => !there.some((one) => isSameShown(one, result) && one.at >= result.at);
  const newer = results.filter(isNew);
  const all = newer.map(shown).reduce((so, result) => withOne(so, result, isSameShown), there);
  for (const part of new Set(newer.map((one) => one.part))) {
    const lines = all.filter((one) => one.part === part).map((one) => `${JSON.stringify(one)}\n`);
    writeFileSync(join(folder, `${part}.jsonl`), lines.join(''));
  }
}

type Named = Pick<Kept, 'part' | 'name'>;

/** The page shows only one soak. */
const isSameShown = (one: Named, other: Named) =>
  one.part === other.part && (one.part === 'soak' || one.name === other.name);

/** Returns the list with a result added or replaced. */
function withOne(all: readonly Kept[], result: Kept, isSame: (one: Kept, other: Kept) => boolean): Kept[] {
  const at = all.findIndex((one) => isSame(one, result));
  return at === -1 ? [...all, result] : all.with(at, result);
}

/** Removes data that the page does not show. */
function shown(result: Kept): Kept {
  const wrong = result.wrong.map((sentence) => sentence.split('\n')[0]!.slice(0, 300));
  if (result.report === undefined) return { ...result, wrong };
  if (result.part === 'soak') {
    const { samples } = result.report;
    const every = Math.ceil(samples.length / MAX_SAMPLES);
    return { ...result, wrong, report: { ...result.report, samples: samples.filter((_, i) => i % every === 0) } };
  }
  if (!isDay(result)) return { ...result, wrong };
  const { report } = result;
  const freshMs = result.part === 'mixed' ? report.freshMs.slice(-1) : report.freshMs;
  return { ...result, wrong, report: { ...report, schedule: '', freshMs, wrong: [] } };
}

function isDay(result: Result): result is Extract<Result, { report: DayReport }> {
  return 'ways' in result.report;
}
