import type { Command } from 'commander';
import { systemClock } from '../../base/clock.ts';
import { messageOf, TagferryError, UsageError } from '../../base/errors.ts';
import { jsonText } from '../../base/foreign-text.ts';
import { readDuration } from '../../base/quantity.ts';
import { painter, widthOf } from '../../base/table.ts';
import { AGENT_WAITING } from '../../control/agent-routes.ts';
import { type AgentAddress, agentOf, askAgent, NoAgentError } from '../connection/control-client.ts';
import { type ShownStatus, statusScreen } from '../status/status-screen.ts';

interface Flags {
  json?: boolean;
  watch?: boolean;
  every: string;
}

const HOME_AND_CLEAR = '\u001b[H\u001b[2J';

/** Adds `tagferry status`. */
export function define(program: Command): void {
  program
    .command('status')
    .description('show session, buffer, posts, listeners, held objects and recent events on one screen')
    .option('--watch', 'refresh until Ctrl-C')
    .option('--every <duration>', 'refresh interval with --watch', '2s')
    .option('--json', 'print the report as JSON')
    .addHelpText(
      'after',
      '\nThe buffer contains live values, accepted within the last few seconds and posted first, and a backlog of older values, posted with the ' +
        'remaining requests. Exit status 1 if no agent responds.',
    )
    .action(async (flags: Flags) => {
      const place = agentOf(program);
      if (flags.watch) await watch(place, flags);
      else await once(place, flags);
    });
}

async function once(place: AgentAddress, flags: Flags): Promise<void> {
  try {
    process.stdout.write(`${await shown(place, flags)}\n`);
  } catch (error) {
    const state = stateWithout(error);
    if (flags.json && state !== undefined) {
      const { code, message, hint } = error as TagferryError;
      const service = error instanceof NoAgentError ? error.service?.state : undefined;
      process.stdout.write(`${jsonText({ state, code, message, hint, service })}\n`);
    }
    throw error;
  }
}

/** Returns the state of an agent that returned no report. */
function stateWithout(error: unknown): string | undefined {
  if (error instanceof NoAgentError) return 'not running';
  return error instanceof TagferryError && error.code === AGENT_WAITING ? 'waiting' : undefined;
}

async function shown(place: AgentAddress, flags: Flags): Promise<string> {
  const status = await askAgent<ShownStatus>(place, 'status');
  if (flags.json) return jsonText(status, flags.watch ? 0 : 2);
  const { stdout } = process;
  return statusScreen(status, widthOf(stdout), painter(stdout, process.env), stdout.isTTY ? 'cut' : 'wrap');
}

/**
 * Refreshes the output until Ctrl-C is pressed. If the agent does not respond, the command exits in a pipe, but not on
 * a terminal.
 */
async function watch(place: AgentAddress, flags: Flags): Promise<void> {
  const every = readDuration(flags.every);
  if ('reason' in every || every.value < 200) {
    throw new UsageError(`--every must be a duration of at least 200ms, not ${flags.every}`, 'Use 500ms, 2s or 1m.');
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
