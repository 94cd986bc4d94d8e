import { packageOf } from '../../test/host/gateway.ts';
import { type CutsReport, type Glimpsed, MOMENTS, type Moment, pullPlugs } from '../../test/prove/machine/cuts.ts';
import type { Mounts } from '../../test/prove/machine/qemu-machine.ts';
import type { Result, Task } from './results.ts';
import { table } from './table.ts';

/** Boots per run; an interrupted run is restarted. */
const CUTS_A_RUN = 5;
/** Rare moments come first, because the others occur anyway. */
const GLIMPSED: readonly Glimpsed[] = ['compaction', 'vacuum', 'salvage', 'flush', 'settlement', 'event', 'ingest'];

interface Kind {
  name: string;
  disks: string;
  mounts: Mounts;
  runs: readonly Run[];
  isControl?: boolean;
  /** The disk is mounted on this machine, so only disk images are checked. */
  isHere?: boolean;
  /** Without barriers a sync does not reach the disk: losses are reported, not failures. */
  isPromised?: boolean;
}

interface Run {
  /** Added to the seed. */
  more: number;
  glimpses: readonly Glimpsed[];
  moments: readonly Moment[];
}

const F2FS = 'state folder on f2fs';
const HERE = 'ext4, mounted by the host kernel';
const SOME: readonly Run[] = [{ more: 0, glimpses: ['ingest', 'ingest', 'flush', 'ingest', 'ingest'], moments: [] }];
/** Boots at each moment, and images; runs with only images are faster. */
const RUNS: readonly Run[] = [
  { more: 0, glimpses: ['compaction', 'vacuum'], moments: momentsOf(0) },
  { more: 1, glimpses: ['compaction', 'vacuum'], moments: momentsOf(1) },
  { more: 2, glimpses: [...GLIMPSED, ...GLIMPSED], moments: [] },
];
const MANY: readonly Run[] = [{ more: 0, glimpses: [...GLIMPSED, ...GLIMPSED, ...GLIMPSED], moments: [] }];
const KINDS: readonly Kind[] = [
  { name: 'control', disks: 'ext4, `synchronous=NORMAL`', mounts: {}, runs: SOME, isControl: true },
  { name: 'ext4', disks: 'ext4', mounts: {}, runs: RUNS, isPromised: true },
  { name: 'f2fs', disks: F2FS, mounts: { f2fs: 'rw' }, runs: RUNS, isPromised: true },
  {
    name: 'control on f2fs',
    disks: `${F2FS}, \`synchronous=NORMAL\``,
    mounts: { f2fs: 'rw' },
    runs: SOME,
    isControl: true,
  },
  { name: 'ext4 on the host kernel', disks: HERE, mounts: {}, runs: MANY, isHere: true, isPromised: true },
  {
    name: 'control, ext4 on the host kernel',
    disks: `${HERE}, \`synchronous=NORMAL\``,
    mounts: {},
    runs: SOME,
    isHere: true,
    isControl: true,
  },
  { name: 'ext4 without barriers', disks: 'ext4, `nobarrier`', mounts: { root: 'rw,nobarrier' }, runs: SOME },
  {
    name: 'f2fs without barriers',
    disks: `${F2FS}, \`fsync_mode=nobarrier\``,
    mounts: { f2fs: 'rw,fsync_mode=nobarrier' },
    runs: SOME,
  },
];

function momentsOf(run: number): Moment[] {
  return Array.from({ length: CUTS_A_RUN }, (_, i) => MOMENTS[(i + run * CUTS_A_RUN) % MOMENTS.length]!);
}

/** Returns the power cut tests of whole machines: promised file systems, controls, and mounts without barriers. */
export function machineTasks(seed: number): Task[] {
  return KINDS.flatMap((kind) => kind.runs.map((run) => taskOf(kind, seed + run.more, run)));
}

function taskOf(kind: Kind, seed: number, { glimpses, moments }: Run): Task {
  return {
    part: 'machine',
    name: `${kind.name}${moments.length === 0 ? ', images' : ''}, seed ${seed}`,
    minutes: 1 + moments.length + Math.ceil(glimpses.length / 6),
    run: async (say) => {
      const [deb, newer] = [await packageOf({ version: '0.0.1' }), await packageOf({ version: '0.0.2' })];
      const { isControl = false, isPromised = false, isHere = false, disks } = kind;
      const { mounts } = kind;
      const report = await pullPlugs({ deb, newer, seed, glimpses, moments, mounts, isHere, isNormal: isControl, say });
      return { report, isControl, isPromised, disks, wrong: wrongIn(report, isControl, isPromised) };
    },
  };
}

function wrongIn(report: CutsReport, isControl: boolean, isPromised: boolean): string[] {
  const { missing, invented, different, events } = summedLosses(report);
  const { repeated } = report.values;
  const sentences: [isSo: boolean, sentence: string][] = [
    [isControl && missing === 0, 'the control lost no values, so the test proves nothing'],
    [isPromised && missing > 0, `${missing} values missing`],
    [isPromised && events > 0, `${events} acknowledged events without a reaction`],
    [invented + different > 0, `${invented} values invented, ${different} different`],
    [isPromised && repeated > report.allowedRepeats, `${repeated} duplicates, ${report.allowedRepeats} allowed`],
  ];
  return sentences.flatMap(([isSo, sentence]) => (isSo ? [sentence] : []));
}

/** Sums the losses on the machine that continued and in the images. */
function summedLosses({ values, events, glimpses }: CutsReport) {
  const sum = {
    missing: values.missing,
    invented: values.invented,
    different: values.different,
    events: events.missing,
  };
  for (const one of glimpses) {
    for (const what of ['missing', 'invented', 'different'] as const) sum[what] += one.values[what];
    sum.events += one.events.missing;
  }
  return sum;
}

type MachineResult = Extract<Result, { part: 'machine' }>;
type AnyCut = CutsReport['cuts'][number] | CutsReport['glimpses'][number];

/** Returns the page section. */
export function machineText(runs: readonly MachineResult[]): string {
  const rows = runs.map(({ name, report, disks }) => {
    const all = cutsOf(report);
    const { missing, invented, different, events } = summedLosses(report);
    return [
      name,
      disks,
      report.cuts.length,
      report.glimpses.length,
      (['lost', 'torn', 'kept'] as const)
        .map((fate) => all.reduce((sum, { fates }) => sum + fates[fate], 0))
        .join(' / '),
      report.values.acknowledged,
      report.glimpses.reduce((sum, { values }) => sum + values.owed, 0),
      missing,
      invented,
      different,
      report.values.repeated,
      `${report.events.acknowledged} / ${events}`,
    ];
  });
  const promised = runs.filter(({ isPromised }) => isPromised).flatMap(({ report }) => cutsOf(report));
  const open = promised.filter(({ fates }) => fates.lost + fates.kept + fates.torn > 0);
  const boots = runs.flatMap(({ report }) => report.cuts.map(({ bootMs }) => bootMs)).sort((a, b) => a - b);
  const took = boots.length === 0 ? '' : ` A boot took ${seconds(boots[0]!)} to ${seconds(boots.at(-1)!)} s.`;
  const upgrades = runs.flatMap(({ name, report }) =>
    report.cuts.flatMap(({ cameUp }) => (cameUp === undefined ? [] : [[name, cameUp]])),
  );
  const said = runs.flatMap(({ name, report }) => (report.said.length > 0 ? [[name, report.said.join(', ')]] : []));
  const done = new Set(runs.map(({ name }) => name));
  const left = machineTasks(1).flatMap(({ name }) => (done.has(name) ? [] : [name]));
  const parts = [
    `${promised.length} cuts on file systems with write barriers, ${open.length} of them with unflushed writes.${took}`,
    table(
      [
        ...['run', 'disks', 'boots', 'images', 'writes lost / torn / kept', 'acknowledged', 'owed in images'],
        ...['missing', 'invented', 'different', 'duplicates', 'events: acknowledged / without reaction'],
      ],
      rows,
    ),
    table(
      ['cut during', ...BEFORE.map((what) => (what === 'a timeout' ? 'after a timeout' : `before ${what}`))],
      whereCut(promised),
    ),
    upgrades.length === 0 ? '' : table(['cut during the package upgrade', 'result'], upgrades),
    said.length === 0 ? '' : table(['run', 'agent and kernel messages about disks and databases'], said),
    left.length === 0 ? '' : `Not run for this page: ${left.join('; ')}.`,
  ];
  return parts.filter(Boolean).join('\n\n');
}

const cutsOf = ({ cuts, glimpses }: CutsReport): AnyCut[] => [...cuts, ...glimpses];
const seconds = (ms: number) => Math.round(ms / 1000);

const BEFORE = ['a write', 'a flush', 'an acknowledgement', 'a timeout'] as const;

/** Counts the cuts by store activity and by the next disk operation. */
function whereCut(cuts: readonly AnyCut[]): (string | number)[][] {
  const works = [...new Set(cuts.map(workOf))].sort();
  return works.map((work) => {
    const its = cuts.filter((cut) => workOf(cut) === work);
    return [work, ...BEFORE.map((before) => its.filter((cut) => cut.before === before).length)];
  });
}

function workOf({ moment, doing }: AnyCut): string {
  if (moment === 'start') return 'startup';
  if (moment === 'package upgrade') return 'package upgrade';
  return doing;
}
