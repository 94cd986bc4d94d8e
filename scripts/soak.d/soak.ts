import { randomInt } from 'node:crypto';
import { parseArgs } from 'node:util';
import { readDuration } from '../../src/base/quantity.ts';
import { liveHostileDay } from '../../test/process/hostile-day.ts';
import { type RoundReport, runRound } from './round.ts';

/** A round begins with an empty gateway and platform, so that a soak of days needs no more memory than one of minutes. */
const ROUND_MS = 3 * 60_000;
const DEFAULT = '10m';
/** Then it ends: more of them say nothing new, and each keeps its files. */
const MOST_WRONG = 3;
/** Of a hostile day: some three minutes. */
const HAPPENINGS = 200;

function fail(text: string): never {
  console.error(`soak: ${text}\nusage: scripts/soak [DURATION] [--seed N]     for example scripts/soak 8h`);
  process.exit(2);
}

function readArguments(): { durationMs: number; seed: number } {
  let parsed: { values: { seed?: string | undefined }; positionals: string[] };
  try {
    parsed = parseArgs({ allowPositionals: true, options: { seed: { type: 'string' } } });
  } catch (error) {
    fail(error instanceof Error ? error.message : String(error));
  }
  const { values, positionals } = parsed;
  if (positionals.length > 1) fail(`what is ${positionals[1]}?`);
  const reading = readDuration(positionals[0] ?? DEFAULT);
  if ('reason' in reading || reading.value < 1_000) fail(`${positionals[0]} is no duration of a second or more`);
  const seed = values.seed === undefined ? randomInt(1, 1_000_000) : Number(values.seed);
  if (!Number.isSafeInteger(seed) || seed < 0) fail(`${values.seed} is no seed`);
  return { durationMs: reading.value, seed };
}

function describe(round: number, seed: number, report: RoundReport): string {
  const number = new Intl.NumberFormat('en');
  const did = Object.entries(report.did).map(([what, times]) => `${number.format(times)} ${what}`);
  const counted = `${number.format(report.values)} values, ${number.format(report.events)} events, ${number.format(report.reactions)} reactions`;
  const verdict =
    report.wrong.length === 0 ? 'nothing missing, repeated or strange' : `WRONG: ${report.wrong.join('; ')}`;
  return `round ${round} (seed ${seed}): ${did.join(', ')}\n  ${counted}, at most ${report.memoryMb} MB: ${verdict}`;
}

/** A hostile day between two rounds. Gives whether all was well. */
async function liveDay(seed: number): Promise<boolean> {
  try {
    const { happened, count } = await liveHostileDay(seed, HAPPENINGS);
    const { acknowledged, ...wrong } = count;
    const isWell = acknowledged > 0 && Object.values(wrong).every((values) => values === 0);
    const verdict = isWell ? 'nothing missing or invented' : `WRONG: ${JSON.stringify(wrong)}`;
    console.log(`a hostile day (seed ${seed}): ${happened.length} happenings\n  ${acknowledged} values: ${verdict}`);
    if (!isWell) console.log(`  ${happened.join(', ')}`);
    return isWell;
  } catch (error) {
    console.log(`a hostile day: WRONG: ${error instanceof Error ? error.message : String(error)}`);
    return false;
  }
}

const { durationMs, seed } = readArguments();
const stopping = new AbortController();
process.once('SIGINT', () => stopping.abort());
process.once('SIGTERM', () => stopping.abort());
console.log(`soak: ${Math.round(durationMs / 1000)} s, seed ${seed}`);

const end = performance.now() + durationMs;
let wrong = 0;
let rounds = 0;
while ((performance.now() < end || rounds === 0) && wrong < MOST_WRONG && !stopping.signal.aborted) {
  const lengthMs = Math.min(ROUND_MS, Math.max(1_000, end - performance.now()));
  const own = seed + rounds;
  const report = await runRound(own, lengthMs, stopping.signal);
  console.log(describe(++rounds, own, report));
  const hasTime = performance.now() < end && !stopping.signal.aborted;
  if (hasTime && !(await liveDay(own))) wrong++;
  if (report.wrong.length === 0) continue;
  wrong++;
  console.log(`  its files: ${report.folder}; again: scripts/soak ${Math.ceil(lengthMs / 1000)}s --seed ${own}`);
  console.log(report.output.replaceAll(/^/gm, '  | '));
}
const took = `${rounds} round${rounds === 1 ? '' : 's'}, seed ${seed}`;
console.log(wrong === 0 ? `soak: all is well after ${took}` : `soak: FAILED in ${wrong} of ${took}`);
process.exit(wrong === 0 ? 0 : 1);
