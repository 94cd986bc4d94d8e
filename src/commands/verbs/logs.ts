import type { Command } from 'commander';
import { UsageError } from '../../base/errors.ts';
import { jsonText } from '../../base/foreign-text.ts';
import { fitted, painter } from '../../base/table.ts';
import { configurationDirectory, readTagsLeniently } from '../../config/configuration.ts';
import { SOURCE_KINDS } from '../../sources/kinds.ts';
import { agentAddress, configOf } from '../connection/control-client.ts';
import { type Reading, readLog } from '../logs/journal.ts';
import { type Choice, chooser, LEVELS, lineText } from '../logs/log-line.ts';
import { isServiceFolder } from '../service/service-folder.ts';
import { positiveInteger, timeOption } from '../terminal/input.ts';

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

/** Adds `tagferry logs`. */
export function define(program: Command): void {
  const gather = (value: string, before: string[]) => [...before, value];
  program
    .command('logs')
    .description('show and follow the log of the service')
    .option(`--level <${LEVELS.join('|')}>`, 'minimum level')
    .option('--event <name>', 'event name, with * as a wildcard (`uplink.*`), repeatable', gather, [])
    .option('--tag <tag>', 'show only lines about this tag or its asset, repeatable', gather, [])
    .option('--asset <number>', 'show only lines about the asset with this number, repeatable', gather, [])
    .option('--since <time>', 'time of the earliest line: a duration before now (30m, 2h) or a date')
    .option('--lines <n>', `maximum number of matching lines (default: ${LINES}; with --since: all)`)
    .option('--no-follow', 'print the existing lines and exit')
    .option('--json', 'print each line as JSON')
    .addHelpText(
      'after',
      '\nTimes are UTC. Without systemd, or if this user cannot read the journal, the agent provides its last 1,000 lines.',
    )
    .action((flags: Flags) => showLogs(configOf(program), flags));
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
  // The journal contains only lines of the service, not those of an agent started manually.
  const isService = isServiceFolder(directory);
  await readLog(agentAddress(config, process.env), isService, reading);
}

/** Returns the assets and instrumentations of the tags in the current tags.yaml. */
function objectsOf(names: readonly string[], directory: string) {
  if (names.length === 0) return [];
  const { tags } = readTagsLeniently({ directory, environment: process.env, kinds: SOURCE_KINDS });
  return names.flatMap((name) => tags.get(name) ?? []);
}

function choiceOf(flags: Flags): Choice {
  const level = LEVELS.find((one) => one === flags.level);
  if (flags.level !== undefined && level === undefined) {
    throw new UsageError(`unknown level "${flags.level}"`, `Use one of ${LEVELS.join(', ')}.`);
  }
  const assets = flags.asset.map((text) => positiveInteger('--asset', text));
  const sinceMs = flags.since === undefined ? undefined : timeOption('--since', flags.since);
  return { level, events: flags.event, tags: flags.tag, assets, sinceMs };
}

function limitOf({ lines, since }: Flags): number | undefined {
  if (lines !== undefined) return positiveInteger('--lines', lines);
  return since === undefined ? LINES : undefined;
}
