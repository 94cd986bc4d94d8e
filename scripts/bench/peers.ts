/**
 * The same job by tagferry, by syslog-ng and by rsyslog, in one run: JSON values in while the destination is away, the
 * destination back, values out by HTTP. `scripts/bench/peers [--values N] [--rounds N]`; two to three minutes.
 */
import { execFileSync } from 'node:child_process';
import { mkdtempSync, rmSync } from 'node:fs';
import { loadavg, tmpdir } from 'node:os';
import { join } from 'node:path';
import { parseArgs } from 'node:util';
import { versionOf } from './contenders/debian.ts';
import { CONNECTIONS, Entrant, type Result } from './contenders/race.ts';
import { rsyslog } from './contenders/rsyslog.ts';
import { syslogNg } from './contenders/syslog-ng.ts';
import { buildTagferry, tagferry } from './contenders/tagferry.ts';
import { machine, median, table } from './measure.ts';

const { values: options } = parseArgs({
  options: { values: { type: 'string', default: '200000' }, rounds: { type: 'string', default: '5' } },
});
const VALUES = Number(options.values);
const ROUNDS = Number(options.rounds);
/** Three syncs a value: as many values as the others would take minutes. */
const VALUES_SYNCED = Math.ceil(VALUES / 200);

const folder = mkdtempSync(join(tmpdir(), 'tagferry-peers-'));

const whole = (count: number) => Math.round(count).toLocaleString('en');
const rounded = (number: number) => (number > 0 && number < 100 ? number.toFixed(number < 1 ? 2 : 1) : whole(number));

/** The rows of the table: what is measured, and how it reads. */
const MEASURES: [string, (result: Result) => string][] = [
  ['an acknowledgement says', ({ contender }) => contender.acknowledges],
  ['values', ({ values }) => whole(values)],
  ['values in a second, 1 connection', ({ inPerSecond }) => whole(median(inPerSecond.get(1)!))],
  ['values in a second, 8 connections', ({ inPerSecond }) => whole(median(inPerSecond.get(8)!))],
  ['CPU s a million in', ({ cpuSecondsIn, values }) => ((cpuSecondsIn * 1e6) / values).toFixed(1)],
  ['fsync, fdatasync, msync a 1,000 values in', ({ syncs, values }) => rounded((syncs * 1000) / values)],
  ['B a value stored, destination away', (result) => rounded(result.storedBytes / result.values)],
  ['B a value written, in', (result) => rounded(result.writtenBytesIn / result.values)],
  ['B a value written, out', (result) => rounded(result.writtenBytesOut / result.values)],
  ['values out a second, destination back', ({ drainPerSecond }) => whole(drainPerSecond)],
  ['values a post', ({ values, posts }) => whole(values / posts)],
  ['peak resident MB', ({ peakMegabytes }) => whole(peakMegabytes)],
];

function print(results: Result[]): void {
  const rows = MEASURES.map(([name, read]) => [name, ...results.map(read)]);
  console.log(table(['', ...results.map(({ contender }) => contender.name)], rows));
  for (const { contender, syncedFiles, repeated } of results) {
    if (syncedFiles > 0) console.log(`${contender.name}: ${syncedFiles} files opened with O_SYNC or O_DSYNC`);
    if (repeated > 0) console.log(`${contender.name}: ${repeated} values delivered twice`);
  }
  const syncing = results.filter(({ syncs, syncedFiles }) => syncs + syncedFiles > 0);
  const others = results.filter((result) => !syncing.includes(result));
  const names = (some: Result[]) => some.map(({ contender }) => contender.name).join('; ');
  console.log(`\nSync while they take values in: ${names(syncing)}. Never synced: ${names(others)}.\n${NOTES}`);
}

const NOTES = `"synced": on disk, a pulled plug leaves it. "written": in the kernel's memory, kill -9 leaves it, a pulled plug does not.
tagferry: POST /v1/values, 1,000 values a request, 204 after the commit that holds them; who waits for a 204 for each
  single value gets at most one a COMMIT_INTERVAL (1 s) and connection.
syslog-ng: a JSON line a value over TCP, flags(flow-control); nothing is acknowledged, so a value counts as taken when the
  statistics show it in the disk buffer's file. Its disk buffer has no option that syncs.
rsyslog RELP: each value a message, answered 200 OK after it was put into the disk queue; synced is queue.syncQueueFiles=on
  with queue.checkpointInterval=1. TCP: nothing is acknowledged; taken when the server, after the last line, closes.
Out: tagferry and syslog-ng post JSON, answered 204; Debian's rsyslog has no omhttp, so omelasticsearch posts its bulk lines.`;

console.log(
  `Values of one JSON object each, 500 series, destination away, then back; ${ROUNDS} rounds, turn by turn, medians\n` +
    `${machine()}; load ${loadavg()[0]!.toFixed(1)} before; syslog-ng ${versionOf('syslog-ng')}, rsyslog ${versionOf('rsyslogd')}\n`,
);
const entrants: Entrant[] = [];
process.on('exit', () => rmSync(folder, { recursive: true, force: true }));
for (const signal of ['SIGINT', 'SIGTERM', 'SIGHUP'] as const) process.once(signal, () => process.exit(1));
try {
  const layer = join(folder, 'sync-counter.so');
  const source = join(import.meta.dirname, 'contenders/sync-counter.c');
  execFileSync('cc', ['-shared', '-fPIC', '-O2', '-o', layer, source], { stdio: 'inherit' });
  const contenders = [
    tagferry(buildTagferry(), VALUES),
    syslogNg(VALUES),
    rsyslog({ synced: true, by: 'relp' }, VALUES_SYNCED),
    rsyslog({ synced: false, by: 'relp' }, VALUES),
    rsyslog({ synced: false, by: 'tcp' }, VALUES),
  ];
  for (const [i, contender] of contenders.entries()) {
    const entrant = new Entrant(contender, join(folder, String(i)));
    entrants.push(entrant);
    await entrant.start(layer);
  }
  for (let round = 0; round < ROUNDS; round++) {
    for (const connections of CONNECTIONS) {
      for (const entrant of entrants) await entrant.turn(connections);
    }
  }
  const results: Result[] = [];
  for (const entrant of entrants) results.push(await entrant.finish());
  print(results);
  const [ours, theirs] = results as [Result, Result];
  // Round by round: what slows the machine for a while slows both.
  const times = (connections: number) =>
    median(ours.inPerSecond.get(connections)!.map((rate, i) => rate / theirs.inPerSecond.get(connections)![i]!));
  const stored = theirs.storedBytes / theirs.values / (ours.storedBytes / ours.values);
  console.log(
    `\ntagferry beside syslog-ng: values in ${times(1).toFixed(1)} times at 1 connection, ${times(8).toFixed(1)} times at 8 (goal 3); ` +
      `stored 1/${stored.toFixed(0)} of its bytes (goal 1/50)`,
  );
} finally {
  for (const entrant of entrants) await entrant.end();
}
