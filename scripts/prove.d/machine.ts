import { execFileSync } from 'node:child_process';
import { mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { MOMENTS, type Moment, pullPlugs } from '../../test/prove/machine/cuts.ts';
import type { Mounts } from '../../test/prove/machine/qemu-gateway.ts';
import { buildDeb } from '../../test/system/gateway.ts';
import type { Task } from './results.ts';

/** So many cuts in one run: what is interrupted is begun again. */
const CUTS_A_RUN = 3;
const RUNS = 6;

interface Kind {
  name: string;
  disks: string;
  mounts: Mounts;
  isControl?: boolean;
  /** Without barriers a sync does not reach the disk: what is lost is told, not promised. */
  isPromised?: boolean;
}

const KINDS: readonly Kind[] = [
  { name: 'ext4', disks: 'ext4', mounts: {}, isPromised: true },
  { name: 'f2fs', disks: 'state folder on f2fs', mounts: { f2fs: 'rw' }, isPromised: true },
];
const ONCE: readonly Kind[] = [
  { name: 'control', disks: 'ext4, synchronous=NORMAL', mounts: {}, isControl: true },
  { name: 'no barriers', disks: 'ext4, nobarrier', mounts: { root: 'rw,nobarrier' } },
];

/** The plug of whole machines: thirty-six cuts in twelve runs, the control, and what mounts without barriers lose. */
export function machineTasks(seed: number): Task[] {
  const many = Array.from({ length: RUNS }, (_, run) => KINDS.map((kind) => taskOf(kind, seed + run, momentsOf(run))));
  return [
    ...ONCE.slice(0, 1).map((kind) => taskOf(kind, seed, ['ingest', 'ingest'])),
    ...many.flat(),
    taskOf(ONCE[1]!, seed, ['ingest', 'ingest', 'ingest']),
  ];
}

/** Each moment once in two runs. */
function momentsOf(run: number): Moment[] {
  return Array.from({ length: CUTS_A_RUN }, (_, i) => MOMENTS[(i + run * CUTS_A_RUN) % MOMENTS.length]!);
}

function taskOf(kind: Kind, seed: number, moments: readonly Moment[]): Task {
  return {
    part: 'machine',
    name: `${kind.name}, seed ${seed}`,
    minutes: 1 + moments.length,
    run: async (say) => {
      const folder = mkdtempSync(join(tmpdir(), 'tagferry-debs-'));
      try {
        const [deb, newer] = [
          await buildDeb(folder, '--fast', '--version', '0.0.1'),
          await buildDeb(folder, '--fast', '--version', '0.0.2'),
        ];
        const { isControl = false, isPromised = false, disks } = kind;
        execFileSync('sync');
        const report = await pullPlugs({ deb, newer, seed, moments, mounts: kind.mounts, isNormal: isControl, say });
        const { missing, invented, different, repeated } = report.values;
        const wrong: string[] = [];
        if (isControl && missing === 0) wrong.push('the control lost nothing: the test proves nothing');
        if (isPromised && missing > 0) wrong.push(`${missing} values missing`);
        if (isPromised && report.events.missing > 0)
          wrong.push(`${report.events.missing} acknowledged events have no reaction`);
        if (invented + different > 0) wrong.push(`${invented} values invented, ${different} different`);
        if (repeated > report.allowedRepeats) wrong.push(`${repeated} values came again, ${report.allowedRepeats} may`);
        return { report, isControl, isPromised, disks, wrong };
      } finally {
        rmSync(folder, { recursive: true, force: true });
      }
    },
  };
}
