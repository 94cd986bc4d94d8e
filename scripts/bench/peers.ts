/**
 * The same job by tagferry, by syslog-ng and by rsyslog, in one run: JSON values in while the destination is away, the
 * destination back, values out by HTTP. `scripts/bench/peers [--values N] [--rounds N]`; about two minutes.
 */
import { execFileSync } from 'node:child_process';
import { mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { parseArgs } from 'node:util';
import { versionOf } from './contenders/debian.ts';
import { type Result, race } from './contenders/race.ts';
import { rsyslog } from './contenders/rsyslog.ts';
import { syslogNg } from './contenders/syslog-ng.ts';
import { buildTagferry, tagferry } from './contenders/tagferry.ts';
import { machine, table } from './measure.ts';

const { values: options } = parseArgs({
  options: { values: { type: 'string', default: '100000' }, rounds: { type: 'string', default: '3' } },
});
const VALUES = Number(options.values);
const ROUNDS = Number(options.rounds);
/** Three syncs a value: as many values as the others would take minutes. */
const VALUES_SYNCED = Math.ceil(VALUES / 40);

const folder = mkdtempSync(join(tmpdir(), 'tagferry-peers-'));
const layer = join(folder, 'sync-counter.so');
const syncFile = join(folder, 'syncs');
const env = { LD_PRELOAD: layer, SYNC_COUNTS: syncFile };

const whole = (count: number) => Math.round(count).toLocaleString('en');
const perValue = (bytes: number, { values }: Result) => (bytes / values).toFixed(bytes / values < 100 ? 1 : 0);

function print(results: Result[]): void {
  const head = [
    '',
    'values',
    'in/s, 1 conn.',
    'in/s, 8 conn.',
    'CPU s/M in',
    'B stored',
    'B written in',
    'out',
    'syncs/1,000 in',
  ];
  const rows = results.map((result) => [
    result.contender.name,
    whole(result.values),
    whole(result.inPerSecond.get(1)!),
    whole(result.inPerSecond.get(8)!),
    ((result.cpuSecondsIn * 1e6) / result.values).toFixed(1),
    perValue(result.storedBytes, result),
    perValue(result.writtenBytesIn, result),
    perValue(result.writtenBytesOut, result),
    ((result.syncs * 1000) / result.values).toFixed(result.syncs > 0 && result.syncs < result.values ? 2 : 0),
    whole(result.drainPerSecond),
    whole(result.values / result.posts),
    result.peakMegabytes.toFixed(0),
    result.contender.acknowledges,
  ]);
  console.log(table([...head, 'drain/s', 'values a post', 'peak MB', 'acknowledged'], rows));
  for (const { contender, syncedFiles, repeated } of results) {
    if (syncedFiles > 0) console.log(`${contender.name}: ${syncedFiles} files opened with O_SYNC or O_DSYNC`);
    if (repeated > 0) console.log(`${contender.name}: ${repeated} values delivered twice`);
  }
}

console.log(
  `Values of one JSON object each, 500 series, destination away, then back; ${ROUNDS} rounds, medians\n` +
    `${machine()}; syslog-ng ${versionOf('syslog-ng')}, rsyslog ${versionOf('rsyslogd')}\n`,
);
try {
  const source = join(import.meta.dirname, 'contenders/sync-counter.c');
  execFileSync('cc', ['-shared', '-fPIC', '-O2', '-o', layer, source], { stdio: 'inherit' });
  const contenders = [
    tagferry(buildTagferry(), VALUES, env),
    syslogNg(VALUES, env),
    rsyslog({ synced: true, by: 'relp' }, VALUES_SYNCED, env),
    rsyslog({ synced: false, by: 'relp' }, VALUES, env),
    rsyslog({ synced: false, by: 'tcp' }, VALUES, env),
  ];
  const results: Result[] = [];
  for (const [i, contender] of contenders.entries()) {
    const place = join(folder, String(i));
    results.push(await race(contender, ROUNDS, place, syncFile));
    rmSync(place, { recursive: true, force: true });
  }
  print(results);
  const [ours, theirs] = results as [Result, Result];
  const times = (connections: number) => ours.inPerSecond.get(connections)! / theirs.inPerSecond.get(connections)!;
  const stored = theirs.storedBytes / theirs.values / (ours.storedBytes / ours.values);
  console.log(
    `\ntagferry beside syslog-ng: values in ${times(1).toFixed(1)} times at 1 connection, ${times(8).toFixed(1)} times at 8 (goal 3); ` +
      `stored 1/${stored.toFixed(0)} of its bytes (goal 1/50)`,
  );
} finally {
  rmSync(folder, { recursive: true, force: true });
}
