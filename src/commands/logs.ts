import type { Command } from 'commander';
import { systemClock } from '../base/clock.ts';
import { UsageError } from '../base/errors.ts';
import { jsonText } from '../base/foreign-text.ts';
import { readDuration } from '../base/quantity.ts';
import { fitted, painter } from '../base/table.ts';
import { configurationDirectory, readTagsLeniently } from '../config/configuration.ts';
import { parseIsoTime } from '../sources/iso-time.ts';
import { SOURCE_KINDS } from '../sources/kinds.ts';
import { daemonPlace } from './control-client.ts';
import type { Reading } from './logs/journal.ts';
import { type Choice, chooser, LEVELS, lineText } from './logs/log-line.ts';
import { readLog } from './logs/reading.ts';
import { isServiceFolder } from './service-folder.ts';

interface Flags {
  level?: string;
  event: string[];
  tag: string[];
  asset: string[];
  since?: string;
  lines?: string;
  follow: boolean;
  json?: boolean;
}

const LINES = 50;

/** Adds `tagferry logs`: the journal of the service, or what the daemon itself keeps of it. */
export function define(program: Command): void {
  const gather = (value: string, before: string[]) => [...before, value];
  program
    .command('logs')
    .description("the service's journal, pretty, followed; by level, event, tag, asset, since")
    .option(`--level <${LEVELS.join('|')}>`, 'only this level and above')
    .option('--event <name>', 'only events of this name, `*` for anything (`uplink.*`); may be repeated', gather, [])
    .option('--tag <tag>', 'only lines about this tag, or its asset (or --asset); may be repeated', gather, [])
    .option('--asset <number>', 'only lines that name this asset (or --tag); may be repeated', gather, [])
    .option('--since <time>', 'from then on: a duration like 30m or 2h ago, or a date')
    .option('--lines <n>', `the last so many that fit (default: ${LINES}; with --since all)`)
    .option('--no-follow', 'end with what is there')
    .option('--json', 'print each line as JSON')
    .addHelpText(
      'after',
      '\nTimes are UTC. Without the right to read the journal, and without systemd, the last 1,000 lines that the daemon keeps.',
    )
    .action((flags: Flags) => showLogs(program.opts<{ config?: string }>().config, flags));
}

async function showLogs(config: string | undefined, flags: Flags): Promise<void> {
  const directory = configurationDirectory(config, process.env);
  const choice = { ...choiceOf(flags), ofTags: objectsOf(flags.tag, directory) };
  const stop = new AbortController();
  process.once('SIGINT', () => stop.abort()).once('SIGTERM', () => stop.abort());
  const { stdout } = process;
  const paint = painter(stdout, process.env);
  const reading: Reading = {
    isChosen: chooser(choice),
    sinceMs: choice.sinceMs,
    limit: limitOf(flags),
    follow: flags.follow,
    show: (line) => stdout.write(`${flags.json ? jsonText(line, 0) : lineText(line, paint)}\n`),
    say: (text) => process.stderr.write(`${fitted(text, process.stderr)}\n`),
    signal: stop.signal,
  };
  // The journal is the service's; a daemon that somebody started by hand writes to its own terminal.
  const isService = isServiceFolder(directory);
  await readLog(daemonPlace(config, process.env), isService, reading);
}

/** Of tags.yaml as it is now, where this user may read it. */
function objectsOf(names: readonly string[], directory: string) {
  if (names.length === 0) return [];
  const { tags } = readTagsLeniently({ directory, environment: process.env, kinds: SOURCE_KINDS });
  return names.flatMap((name) => tags.get(name) ?? []);
}

function choiceOf(flags: Flags): Choice {
  const level = LEVELS.find((one) => one === flags.level);
  if (flags.level !== undefined && level === undefined) {
    throw new UsageError(`there is no level "${flags.level}"`, `Write one of ${LEVELS.join(', ')}.`);
  }
  const assets = flags.asset.map((text) => numberOf('--asset', text));
  const sinceMs = flags.since === undefined ? undefined : sinceOption(flags.since);
  return { level, events: flags.event, tags: flags.tag, assets, sinceMs };
}

function limitOf({ lines, since }: Flags): number | undefined {
  if (lines !== undefined) return numberOf('--lines', lines);
  return since === undefined ? LINES : undefined;
}

function numberOf(name: string, text: string): number {
  if (!/^\d{1,9}$/.test(text)) throw new UsageError(`${name} ${JSON.stringify(text)} is no whole number`);
  return Number(text);
}

/** `--since` in milliseconds since 1970: a date, or a duration before now. */
export function sinceOption(text: string): number {
  const atMs = parseIsoTime(text);
  if (Number.isFinite(atMs)) return atMs;
  const age = readDuration(text);
  if ('value' in age) return systemClock.wallMs() - age.value;
  throw new UsageError(`--since ${JSON.stringify(text)} ${age.reason}`, `Or give a date: ${age.instead}.`);
}
