import { existsSync, mkdirSync, readFileSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import type { DayReport } from '../../test/prove/day.ts';
import type { CutsReport } from '../../test/prove/machine/cuts.ts';
import type { PlugReport } from '../../test/prove/plug.ts';
import type { MonthReport } from '../../test/prove/session-month.ts';
import type { SoakReport } from './soak.ts';

export type Part = 'faults' | 'stops' | 'reloads' | 'mixed' | 'plug' | 'session' | 'machine' | 'soak';

/** One run of a part that came to its end. */
export type Result = {
  /** Which of its part: what is there is not done again. */
  name: string;
  /** ISO 8601. */
  at: string;
  tookMs: number;
  /** Runnable processes on this machine in the last minute, for a core. */
  load: number;
  /** Sentences; none where all is well. */
  wrong: string[];
} & (
  | { part: 'faults' | 'stops' | 'reloads' | 'mixed'; report: DayReport }
  | { part: 'plug'; report: PlugReport; isControl: boolean }
  | { part: 'session'; report: MonthReport }
  | { part: 'machine'; report: CutsReport; isControl: boolean; isPromised: boolean; disks: string }
  | { part: 'soak'; report: SoakReport }
);

/** One run of a part; how long, in minutes, on two cores that do nothing else. */
export interface Task {
  part: Part;
  name: string;
  minutes: number;
  run(say: (what: string) => void): Promise<{ wrong: string[]; report: Result['report'] }>;
}

const FOLDER = join(import.meta.dirname, '../../.cache/prove');
const FILE = join(FOLDER, 'results.json');

export function readResults(): Result[] {
  return existsSync(FILE) ? (JSON.parse(readFileSync(FILE, 'utf8')) as Result[]) : [];
}

/** Keeps one more, in the place of what was there under its name. */
export function keepResult(result: Result): void {
  mkdirSync(FOLDER, { recursive: true });
  const others = readResults().filter(({ part, name }) => part !== result.part || name !== result.name);
  writeFileSync(FILE, JSON.stringify([...others, result]));
}
