import type { Command } from 'commander';
import { systemClock } from '../base/clock.ts';
import { messageOf, TagferryError, UsageError } from '../base/errors.ts';
import { jsonText } from '../base/foreign-text.ts';
import { readDuration } from '../base/quantity.ts';
import { painter, widthOf } from '../base/table.ts';
import { AGENT_WAITING } from '../control/waiting-routes.ts';
import { askDaemon, type DaemonPlace, daemonPlace, NoDaemonError } from './control-client.ts';
import { type ShownStatus, statusScreen } from './status-screen.ts';

interface Flags {
  json?: boolean;
  watch?: boolean;
  every: string;
}

const HOME_AND_CLEAR = '\u001b[H\u001b[2J';

/** Adds `tagferry status`: one screen of what the running daemon is doing. */
export function define(program: Command): void {
  program
    .command('status')
    .description('one screen: session, buffer, last post, listener, holds, last events')
    .option('--watch', 'show it anew until Ctrl-C')
    .option('--every <duration>', 'with --watch', '2s')
    .option('--json', 'print the report as JSON')
    .action(async (flags: Flags) => {
      const place = daemonPlace(program.opts<{ config?: string }>().config, process.env);
      if (flags.watch) await watch(place, flags);
      else await once(place, flags);
    });
}

async function once(place: DaemonPlace, flags: Flags): Promise<void> {
  try {
    process.stdout.write(`${await shown(place, flags)}\n`);
  } catch (error) {
    const state = stateWithout(error);
    if (flags.json && state !== undefined) {
      const { code, message, hint } = error as TagferryError;
      const service = error instanceof NoDaemonError ? error.service?.state : undefined;
      process.stdout.write(`${jsonText({ state, code, message, hint, service })}\n`);
    }
    throw error;
  }
}

/** What is known of a daemon that gives no report. */
function stateWithout(error: unknown): string | undefined {
  if (error instanceof NoDaemonError) return 'not running';
  return error instanceof TagferryError && error.code === AGENT_WAITING ? 'waiting' : undefined;
}

async function shown(place: DaemonPlace, flags: Flags): Promise<string> {
  const status = await askDaemon<ShownStatus>(place, 'status');
  if (flags.json) return jsonText(status, flags.watch ? 0 : 2);
  const { stdout } = process;
  return statusScreen(status, widthOf(stdout), painter(stdout, process.env), stdout.isTTY ? 'cut' : 'wrap');
}

/** Until Ctrl-C. On a terminal a daemon that is away is waited for; in a pipe it ends the verb. */
async function watch(place: DaemonPlace, flags: Flags): Promise<void> {
  const every = readDuration(flags.every);
  if ('reason' in every || every.value < 200) {
    throw new UsageError(`--every ${flags.every} is no duration of 200ms or more`, 'Write 500ms, 2s or 1m.');
  }
  const onTerminal = process.stdout.isTTY === true && !flags.json;
  const stop = new AbortController();
  const end = () => stop.abort();
  process.once('SIGINT', end).once('SIGTERM', end);
  process.stdout.on('error', end);
  while (!stop.signal.aborted) {
    const screen = await shown(place, flags).catch((error: unknown) => {
      if (!onTerminal) throw error;
      const hint = error instanceof TagferryError && error.hint ? `\n${error.hint}` : '';
      return `${messageOf(error)}${hint}`;
    });
    const rows = process.stdout.rows ?? 24;
    process.stdout.write(
      onTerminal
        ? `${HOME_AND_CLEAR}${screen
            .split('\n')
            .slice(0, rows - 1)
            .join('\n')}\n`
        : `${screen}\n${flags.json ? '' : '\n'}`,
    );
    await systemClock.sleep(every.value, stop.signal).catch(() => {});
  }
}
