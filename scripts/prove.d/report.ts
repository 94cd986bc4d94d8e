import { mkdirSync, writeFileSync } from 'node:fs';
import { cpus, totalmem } from 'node:os';
import { join } from 'node:path';
import { WHOLE_FAULTS } from '../../test/prove/faults.ts';
import { summed, type Verdict } from '../../test/prove/oracle.ts';
import { machineTasks } from './machine.ts';
import { plot } from './plot.ts';
import type { Result } from './results.ts';
import type { Sample, SoakReport } from './soak.ts';

const number = new Intl.NumberFormat('en');
const FOLDER = 'proof';

const PROMISE = `# Proof: acknowledged means delivered

\`scripts/prove\` shows it, part by part, and wrote the figures of this page; \`scripts/prove --quick\` does in a fresh clone what fits a
quarter of an hour, as root on Debian. A bounded part of each runs with every \`scripts/test\` (\`test/prove\`).

**The judge.** A producer claims each value before it gives it away. An acknowledgement makes a claim an obligation: a 204, the PUBACK on
its way to the broker, a file in \`done/\`, a poll that the agent shows to have counted. In the end the platform is asked: *missing* were
acknowledged and are not there, *invented* are there and were never given, *different* differ in value, bit for bit, or in status. All
three must be 0. *Came again* is allowed up to what [architecture.md](architecture.md) says under 2, counted while it happens: the posts
under way at a crash and those answered since the last commit, and a post for each answer that was lost. After each fault a fresh value must
get through within 75 s. Events of webhooks are judged likewise: a 204 is the obligation, the journal that the reaction writes is the judge.

**Repeat it.** \`scripts/prove mixed --seed N\` lives the schedule of a seed again and prints it; \`PROVE_SEED=N vitest run test/prove\` does for the tests.
\`scripts/prove soak --for 3d\` is the soak for days; \`scripts/prove machine\` pulls the plug of whole machines.
`;

/** The page, from what was run. Its plots go beside it. */
export function reportText(results: readonly Result[], docs: string): string {
  const parts = [
    PROMISE,
    surroundings(results),
    faults(results),
    stops(results),
    reloads(results),
    mixtures(results),
    plug(results),
    machines(results),
    session(results),
  ];
  const soak = results.findLast((one) => one.part === 'soak');
  if (soak?.part === 'soak') parts.push(soakText(soak.report, docs));
  return `${parts.filter(Boolean).join('\n')}`;
}

function table(head: readonly string[], rows: readonly (readonly (string | number)[])[]): string {
  const line = (cells: readonly (string | number)[]) =>
    `| ${cells.map((cell) => (typeof cell === 'number' ? number.format(cell) : cell)).join(' | ')} |`;
  return [line(head), `|${'---|'.repeat(head.length)}`, ...rows.map(line)].join('\n');
}

const JUDGED = ['acknowledged', 'missing', 'invented', 'different', 'came again'] as const;
const judged = (verdict: Verdict) => [
  verdict.acknowledged,
  verdict.missing,
  verdict.invented,
  verdict.different,
  verdict.repeated,
];

function surroundings(results: readonly Result[]): string {
  const times = results.map(({ at }) => at).sort();
  const loads = results.map(({ load }) => load);
  const gib = Math.round(totalmem() / 2 ** 30);
  return `**These figures** are of ${times[0]?.slice(0, 10)}, ${times[0]?.slice(11, 16)} to ${times.at(-1)?.slice(11, 16)} UTC, on a machine of ${cpus().length} cores and ${gib} GiB that did much else:
${Math.min(...loads).toFixed(1)} to ${Math.max(...loads).toFixed(1)} processes for each core wanted to run. What is counted does not depend on that; what is timed does.
`;
}

function faults(results: readonly Result[]): string {
  const found = results.find(({ part }) => part === 'faults');
  if (found?.part !== 'faults') return '';
  const { ways, freshMs, events, allowedRepeats, all, memoryMb } = found.report;
  return `## Each fault alone
All ways give values, one fault after the other befalls the daemon; ${number.format(all.repeated)} values came again, ${number.format(allowedRepeats)} might.
Of ${events.sent} events ${events.acknowledged} were acknowledged, ${events.missing} of these without a reaction. At most ${memoryMb} MB.

${table(
  ['way', ...JUDGED],
  Object.entries(ways).map(([way, verdict]) => [way, ...judged(verdict)]),
)}

${table(
  ['after', 'a fresh value took, ms'],
  freshMs.map(({ after, ms }) => [after, ms]),
)}
`;
}

function stops(results: readonly Result[]): string {
  const found = results.find(({ part }) => part === 'stops');
  if (found?.part !== 'stops') return '';
  const { all, allowedRepeats, freshMs, stops: ended } = found.report;
  const rows = ended
    .filter(({ during }) => during in WHOLE_FAULTS)
    .map(({ during, exit, ms, tokens }, i) => [during, String(exit), ms, tokens, freshMs[i + 1]?.ms ?? '']);
  return `## A stop while each fault holds
SIGTERM in the middle of each fault, and at eight moments of a start (SIGKILL); then the fault is over and it starts again. \`TimeoutStopSec\` is 45 s: who
takes longer is killed, which is right only where a disk answers nobody (its session is ended before). To SIGTERM before it listens to
signals a program ends by the signal. Tokens that outlive a stop are those that nobody could be told to revoke: the next start does. All
ways: ${judgedWords(all, allowedRepeats)}

${table(['while', 'it ended with', 'after, ms', 'tokens left', 'a fresh value after the next start, ms'], rows)}
`;
}

function reloads(results: readonly Result[]): string {
  const found = results.find(({ part }) => part === 'reloads');
  if (found?.part !== 'reloads') return '';
  const { all, allowedRepeats, freshMs } = found.report;
  return `## New files while each fault holds
SIGHUP with other settings in the middle of each fault; each was read, at the latest when the fault was over, and a fresh value came within
${number.format(Math.max(...freshMs.map(({ ms }) => ms)))} ms at most. All ways: ${judgedWords(all, allowedRepeats)}
`;
}

function judgedWords({ acknowledged, missing, invented, different, repeated }: Verdict, allowed: number): string {
  const counts = [acknowledged, missing, invented, different, repeated, allowed].map((count) => number.format(count));
  return `${counts[0]} acknowledged, ${counts[1]} missing, ${counts[2]} invented, ${counts[3]} different, ${counts[4]} came again of ${counts[5]} that might.`;
}

function mixtures(results: readonly Result[]): string {
  const days = results.flatMap((one) => (one.part === 'mixed' ? [one] : []));
  if (days.length === 0) return '';
  const rows = days.map(({ report }) => [
    String(report.seed),
    Object.values(report.faults).reduce((sum, times) => sum + times, 0),
    ...judged(report.all),
    report.allowedRepeats,
    `${report.events.acknowledged} / ${report.events.missing}`,
    report.freshMs.at(-1)!.ms,
  ]);
  return `## Mixed by a seed
Half a minute each, faults beside each other.

${table(['seed', 'faults', ...JUDGED, 'might', 'events acknowledged / without reaction', 'fresh value, ms'], rows)}
`;
}

function plug(results: readonly Result[]): string {
  const runs = results.flatMap((one) => (one.part === 'plug' ? [one] : []));
  if (runs.length === 0) return '';
  const rows = runs.map(({ name, report, isControl }) => [
    isControl ? 'control: `synchronous=NORMAL`' : `as shipped, ${name}`,
    report.cuts,
    ...judged(report.values),
    `${report.events.acknowledged} / ${report.events.missing}`,
  ]);
  return `## The plug, the fast way
The daemon's databases behind a layer that knows what was synced: at a cut only that is left. The control must lose values, or this proves nothing.

${table(['run', 'cuts', ...JUDGED, 'events acknowledged / without reaction'], rows)}
`;
}

const NO_MACHINES = `## The plug of a whole machine
Not run for this page: \`scripts/prove machine\` does it, an hour where nothing else runs. What the control and mounts without barriers lose
stands here then.
`;

function machines(results: readonly Result[]): string {
  const runs = results.flatMap((one) => (one.part === 'machine' ? [one] : []));
  if (runs.length === 0) return NO_MACHINES;
  const rows = runs.map(({ name, report, disks }) => [
    name,
    disks,
    Object.entries(report.moments)
      .map(([moment, times]) => (times === 1 ? moment : `${times} ${moment}`))
      .join(', '),
    ...judged(report.values),
    `${report.events.acknowledged} / ${report.events.missing}`,
    report.droppedBlocks,
  ]);
  const cuts = runs.reduce((sum, { report, isPromised }) => sum + (isPromised ? report.cuts : 0), 0);
  const boots = runs.flatMap(({ report }) => report.bootMs).sort((a, b) => a - b);
  const done = new Set(runs.map(({ name }) => name));
  const left = machineTasks(1).flatMap(({ name }) => (done.has(name) ? [] : [name]));
  const open = left.length === 0 ? '' : `\nNot run for this page: ${left.join('; ')}.\n`;
  return `## The plug of a whole machine
Debian's kernel and tree in qemu, the package installed, values and events over the network. Its disks are a network block device of our own
(\`test/prove/machine/nbd-disk.ts\`) that keeps writes in memory until a flush; qemu is killed, and all that was not flushed is gone, or every
other block of it by chance. ${cuts} cuts so far where the promise holds; the control must lose values. A boot took
${Math.round(boots[0]! / 1000)} to ${Math.round(boots.at(-1)! / 1000)} s.

${table(['run', 'disks', 'cut in', ...JUDGED, 'events acknowledged / without reaction', 'blocks lost'], rows)}
${open}`;
}

function session(results: readonly Result[]): string {
  const runs = results.flatMap((one) => (one.part === 'session' ? [one.report] : []));
  if (runs.length === 0) return '';
  const rows = runs.map((report) => [
    String(report.seed),
    report.days,
    report.calls,
    report.tokens,
    Object.values(report.faults).reduce((sum, times) => sum + times, 0),
    report.deadTokens,
    report.renewalsAtOnce,
    report.leftAfterStop,
  ]);
  return `## The session
Days on a virtual clock, a call each minute, something fails about every hour.

${table(['seed', 'days', 'calls', 'tokens', 'faults', 'calls with a dead token', 'renewals at once', 'tokens alive after clean stops'], rows)}
`;
}

const PLOTS: readonly [file: string, title: string, of: (sample: Sample) => number][] = [
  ['memory', 'resident memory, MB', ({ memoryMb }) => memoryMb],
  ['handles', 'open files and sockets', ({ handles }) => handles],
  ['state', 'state folder, MB', ({ stateMb }) => stateMb],
  ['syncs', 'syncs since the start', ({ syncs }) => syncs],
  ['answers', 'until a 204, 99th of 100, ms', ({ answerMs }) => answerMs],
  ['arrivals', 'until a value is on the platform, ms', ({ arrivedMs }) => arrivedMs],
];

function soakText(soak: SoakReport, docs: string): string {
  mkdirSync(join(docs, FOLDER), { recursive: true });
  const marks = soak.faults.map(({ s }) => s);
  const rows = PLOTS.map(([file, title, of]) => {
    const points = soak.samples.map((sample) => ({ s: sample.s, y: of(sample) }));
    writeFileSync(join(docs, FOLDER, `${file}.svg`), plot(title, points, marks));
    return [
      title,
      ...[0.1, 0.5, 0.9].map((share) => Math.round(points[Math.floor(share * points.length)]?.y ?? 0)),
      Math.round(driftPerHour(points) * 10) / 10,
    ];
  });
  return `## The soak
One daemon, ${Math.round(soak.lengthS / 60)} min at 1,000 values a second by all ways, seed ${soak.seed}, a fault every few minutes (red marks).

${table(JUDGED, [judged(summed([soak.values]))])}

${table(['', 'after a tenth', 'in the middle', 'after nine tenths', 'drift an hour'], rows)}

${PLOTS.map(([file, title]) => `![${title}](${FOLDER}/${file}.svg)`).join('\n')}

${table(
  ['at, s', 'fault', 'fresh value, ms'],
  soak.faults.map(({ s, fault, freshMs }) => [s, fault, freshMs]),
)}
`;
}

/** The slope of the straight line through the second half, when all has warmed up. */
function driftPerHour(points: readonly { s: number; y: number }[]): number {
  const late = points.slice(Math.floor(points.length / 2));
  if (late.length < 2) return 0;
  const meanS = late.reduce((sum, { s }) => sum + s, 0) / late.length;
  const meanY = late.reduce((sum, { y }) => sum + y, 0) / late.length;
  const above = late.reduce((sum, { s, y }) => sum + (s - meanS) * (y - meanY), 0);
  const below = late.reduce((sum, { s }) => sum + (s - meanS) ** 2, 0);
  return below === 0 ? 0 : (above / below) * 3_600;
}
