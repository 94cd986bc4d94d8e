import { mkdirSync, writeFileSync } from 'node:fs';
import { basename, join } from 'node:path';
import type { DayReport } from '../../test/prove/day.ts';
import { summed, type Verdict } from '../../test/prove/oracle.ts';
import { svgOf } from '../plot.ts';
import { crashText } from './crash.ts';
import { machineText } from './machine.ts';
import { peersText } from './peers.ts';
import type { Kept, Part, Result } from './results.ts';
import type { Sample, SoakReport } from './soak.ts';
import { judgedHead, judgedRow, table } from './table.ts';

const number = new Intl.NumberFormat('en');

type Of<P extends Part> = Extract<Result, { part: P }>;

/**
 * Puts the results into the page, between `<!-- faults -->` and `<!-- /faults -->` and so on for each part. Everything
 * else is written manually. Plots are stored in `folder` next to the page.
 */
export function reportText(page: string, results: readonly Kept[], folder: string): string {
  const sections: Record<Part, () => string> = {
    faults: () => faults(of(results, 'faults')),
    stops: () => stops(of(results, 'stops')),
    reloads: () => reloads(of(results, 'reloads')),
    mixed: () => mixtures(of(results, 'mixed')),
    plug: () => plug(of(results, 'plug')),
    crash: () => crashText(of(results, 'crash')),
    session: () => session(of(results, 'session')),
    machine: () => machineText(of(results, 'machine')),
    peers: () => peersText(of(results, 'peers')),
    soak: () => soakText(of(results, 'soak'), folder),
  };
  return Object.entries(sections).reduce((text, [part, section]) => {
    const runs = results.filter((one) => one.part === part);
    const words = [when(runs), runs.some(({ report }) => report) ? section() : '', failures(runs)];
    return filled(text, part, words.filter(Boolean).join('\n\n'));
  }, page);
}

/** Returns the run with the most faults. */
function longest(runs: readonly { report: DayReport }[]): DayReport {
  return runs.reduce((one, other) => (other.report.freshMs.length >= one.report.freshMs.length ? other : one)).report;
}

/** Replaces the text between the marks of a part, or appends it with its marks. */
function filled(page: string, part: string, words: string): string {
  const [begin, end] = [`<!-- ${part} -->`, `<!-- /${part} -->`];
  const [from, to] = [page.indexOf(begin), page.indexOf(end)];
  if (from === -1 || to < from) return `${page}\n${begin}\n${words}\n${end}\n`;
  return `${page.slice(0, from)}${begin}\n${words}\n${page.slice(to)}`;
}

function of<P extends Part>(results: readonly Kept[], part: P): Of<P>[] {
  return results.filter((one): one is Of<P> => one.part === part && one.report !== undefined);
}

/** Returns the times and machines of the runs. */
function when(runs: readonly Kept[]): string {
  if (runs.length === 0) return 'Not run yet.';
  const minutes = [...new Set(runs.map(({ at }) => at.slice(0, 16).replace('T', ' ')))].sort();
  const [first, last] = [minutes[0]!, minutes.at(-1)!];
  const times = first === last ? first : `${first} to ${last}`;
  const machines = new Set(
    runs.flatMap(({ machine }) => (machine ? [`${machine.cores} cores and ${machine.gib} GiB`] : [])),
  );
  const loads = runs.flatMap(({ load }) => (load === undefined ? [] : [load])).sort((a, b) => a - b);
  const range = [...new Set([loads[0], loads.at(-1)].map((load) => load?.toFixed(1)))].join(' to ');
  const busy = loads.length === 0 ? '' : `, with ${range} runnable processes per core`;
  return `*${times}${first.length > 10 ? ' UTC' : ''}${machines.size === 0 ? '' : `, on ${[...machines].join(', ')}`}${busy}.*`;
}

function failures(runs: readonly Kept[]): string {
  return runs
    .filter(({ wrong }) => wrong.length > 0)
    .map(({ name, wrong }) => `**Wrong** in ${name}: ${wrong.filter(Boolean).join('; ')}.`)
    .join('\n\n');
}

function judgedWords({ acknowledged, missing, invented, different, repeated }: Verdict, allowed: number): string {
  const counts = [acknowledged, missing, invented, different, repeated, allowed].map((count) => number.format(count));
  return `${counts[0]} acknowledged, ${counts[1]} missing, ${counts[2]} invented, ${counts[3]} different, ${counts[4]} duplicates of ${counts[5]} allowed.`;
}

function faults(runs: readonly Of<'faults'>[]): string {
  const { ways, freshMs, events, allowedRepeats, all, memoryMb } = longest(runs);
  const rows = Object.entries(ways).map(([way, verdict]) => [way, ...judgedRow(verdict)]);
  const times = freshMs.map(({ after, ms }) => [after, ms]);
  return `All ingest paths: ${judgedWords(all, allowedRepeats)}
${events.acknowledged} of ${events.sent} events were acknowledged, ${events.missing} of them without a reaction. Peak memory: ${memoryMb} MB.

${table(['ingest path', ...judgedHead], rows)}

${table(['after', 'first fresh value, ms'], times)}`;
}

function stops(runs: readonly Of<'stops'>[]): string {
  const { all, allowedRepeats, freshMs, stops: ended } = longest(runs);
  const freshAfter = new Map(freshMs.map(({ after, ms }) => [after, ms]));
  const rows = ended
    .filter(({ during }) => freshAfter.has(during))
    .map(({ during, exit, ms, tokens }) => [during, String(exit), ms, tokens, freshAfter.get(during)!]);
  return `All ingest paths: ${judgedWords(all, allowedRepeats)}

${table(['fault', 'exit status', 'stopped after, ms', 'tokens left', 'first fresh value after the next start, ms'], rows)}`;
}

function reloads(runs: readonly Of<'reloads'>[]): string {
  const { all, allowedRepeats, freshMs } = longest(runs);
  const times = freshMs.map(({ after, ms }) => [after, ms]);
  return `All ingest paths: ${judgedWords(all, allowedRepeats)}

${table(['after', 'first fresh value, ms'], times)}`;
}

function mixtures(runs: readonly Of<'mixed'>[]): string {
  const rows = runs.map(({ at, report }) => [
    String(report.seed),
    at.slice(0, 16).replace('T', ' '),
    Object.values(report.faults).reduce((sum, times) => sum + times, 0),
    ...judgedRow(report.all),
    report.allowedRepeats,
    `${report.events.acknowledged} / ${report.events.missing}`,
    report.freshMs.at(-1)!.ms,
  ]);
  const head = ['seed', 'run at', 'faults', ...judgedHead, 'allowed', 'events: acknowledged / without reaction'];
  return table([...head, 'fresh value, ms'], rows);
}

function plug(runs: readonly Of<'plug'>[]): string {
  const rows = runs.map(({ name, report, isControl }) => [
    isControl ? 'control: `synchronous=NORMAL`' : `as shipped, ${name.split(',')[0]}`,
    report.cuts,
    ...judgedRow(report.values),
    `${report.events.acknowledged} / ${report.events.missing}`,
  ]);
  return table(['run', 'cuts', ...judgedHead, 'events: acknowledged / without reaction'], rows);
}

function session(runs: readonly Of<'session'>[]): string {
  const rows = runs.map(({ report }) => [
    String(report.seed),
    report.days,
    report.calls,
    report.tokens,
    Object.values(report.faults).reduce((sum, times) => sum + times, 0),
    report.deadTokens,
    report.renewalsAtOnce,
    report.leftAfterStop,
  ]);
  const head = ['seed', 'days', 'calls', 'tokens', 'faults', 'calls with an invalid token'];
  return table([...head, 'maximum concurrent renewals', 'tokens left after clean stops'], rows);
}

const PLOTS: readonly [file: string, title: string, of: (sample: Sample) => number][] = [
  ['memory', 'resident memory, MB', ({ memoryMb }) => memoryMb],
  ['handles', 'open files and sockets', ({ handles }) => handles],
  ['state', 'state folder, MB', ({ stateMb }) => stateMb],
  ['syncs', 'syncs since startup', ({ syncs }) => syncs],
  ['answers', 'time to a 204, 99th percentile, ms', ({ answerMs }) => answerMs],
  ['arrivals', 'time to arrival at the platform, ms', ({ arrivedMs }) => arrivedMs],
];

function soakText(runs: readonly Of<'soak'>[], folder: string): string {
  const soak: SoakReport = runs.at(-1)!.report;
  mkdirSync(folder, { recursive: true });
  const marks = soak.faults.map(({ s }) => s);
  const rows = PLOTS.map(([file, title, pick]) => {
    const points = soak.samples.map((sample) => ({ s: sample.s, y: pick(sample) }));
    const line = { name: '', colour: '#1565c0', points: points.map(({ s, y }) => [s, y] as const) };
    writeFileSync(join(folder, `${file}.svg`), svgOf(title, [{ title: '', lines: [line], marks }]));
    const shares = [0.1, 0.5, 0.9].map((share) => Math.round(points[Math.floor(share * points.length)]?.y ?? 0));
    return [title, ...shares, Math.round(driftPerHour(points) * 10) / 10];
  });
  return `${Math.round(soak.lengthS / 60)} min, seed ${soak.seed}. All ingest paths: ${judgedWords(summed([soak.values]), soak.allowedRepeats)}

${table(['', 'at 10 %', 'at 50 %', 'at 90 %', 'drift per hour'], rows)}

${PLOTS.map(([file, title]) => `![${title}](${basename(folder)}/${file}.svg)`).join('\n')}

${table(
  ['time, s', 'fault', 'fresh value, ms'],
  soak.faults.map(({ s, fault, freshMs }) => [s, fault, freshMs]),
)}`;
}

/** Returns the slope of the regression line through the second half, after the warm-up. */
function driftPerHour(points: readonly { s: number; y: number }[]): number {
  const late = points.slice(Math.floor(points.length / 2));
  if (late.length < 2) return 0;
  const meanS = late.reduce((sum, { s }) => sum + s, 0) / late.length;
  const meanY = late.reduce((sum, { y }) => sum + y, 0) / late.length;
  const above = late.reduce((sum, { s, y }) => sum + (s - meanS) * (y - meanY), 0);
  const below = late.reduce((sum, { s }) => sum + (s - meanS) ** 2, 0);
  return below === 0 ? 0 : (above / below) * 3_600;
}
