import type { Command } from 'commander';
import { counted } from '../base/amounts.ts';
import { systemClock } from '../base/clock.ts';
import { TagferryError, UsageError } from '../base/errors.ts';
import { jsonText, plain } from '../base/foreign-text.ts';
import { readDuration } from '../base/quantity.ts';
import type { DecommissionOutlook, DecommissionStep } from '../control/decommission-routes.ts';
import { decommissionedWords } from '../store/decommission-mark.ts';
import { confirm } from './asking.ts';
import { type BufferConnection, openBufferConnection } from './buffer-connection.ts';
import { askDaemon, type DaemonPlace, daemonPlace, NoDaemonError } from './control-client.ts';
import { lossesOf, lossText, type Outcome, tellOutcome } from './decommission/outcome.ts';

interface Flags {
  timeout: string;
  loseValues?: boolean;
  yes?: boolean;
  json?: boolean;
}

/** How long a daemon may take to end: its stop is bounded by 20 s. */
const END_PATIENCE_MS = 40_000;
const END_LOOK_MS = 100;

/** Adds `tagferry decommission`: the last verb of a gateway, until `setup`. */
export function define(program: Command): void {
  program
    .command('decommission')
    .description(
      'take this gateway out of service: drain, delete its webhook, revoke the tokens, mark the state folder',
    )
    .option('--timeout <duration>', 'how long values may take to reach the platform', '10m')
    .option('--lose-values', 'go on where values are left, or the webhook cannot be deleted')
    .option('--yes', 'do not ask')
    .option('--json', 'print the outcome as JSON')
    .addHelpText(
      'after',
      '\nValues left after the timeout, in quarantine too: exit status 1, nothing is deleted and intake goes on, unless --lose-values. ' +
        'Afterwards `tagferry run` ends with 78 until `tagferry setup`. The state folder stays as it is.',
    )
    .action(async (flags: Flags) => {
      const timeout = readDuration(flags.timeout);
      if (!('value' in timeout)) throw new UsageError(`--timeout ${flags.timeout} ${timeout.reason}`, timeout.instead);
      const { config } = program.opts<{ config?: string }>();
      const place = daemonPlace(config, process.env);
      const outlook = await askDaemon<DecommissionOutlook>(place, 'decommission/look').catch((error: unknown) => {
        if (error instanceof NoDaemonError) return error;
        throw error;
      });
      const isStopped = outlook instanceof NoDaemonError;
      const already = decommissionedWords(place.stateDir);
      if (isStopped && already !== undefined) {
        say(flags, already);
        if (flags.json) print(jsonText({ decommissioned: true }));
        return;
      }
      if (!isStopped)
        await endDaemon(await openBufferConnection(config, process.env), place, outlook, flags, timeout.value);
      else {
        const { endStopped } = await import('./decommission/stopped.ts');
        await endStopped(
          config,
          { ...place, startHint: outlook.hint ?? '' },
          flags,
          (question) => confirm(question, flags.yes),
          (text) => say(flags, text),
        );
      }
    });
}

async function endDaemon(
  connection: BufferConnection,
  place: DaemonPlace,
  outlook: DecommissionOutlook,
  flags: Flags,
  timeoutMs: number,
): Promise<void> {
  const losses = await lossesOf(connection);
  say(flags, lossText(losses, outlook.events));
  for (const { id, url, own } of outlook.webhooks) {
    const what = own ? 'is deleted' : 'was left behind and stays: `tagferry webhook prune` takes it away';
    say(flags, `Webhook ${id} (${plain(url)}) ${what}.`);
  }
  if (outlook.webhooks_unknown) say(flags, `The webhooks are not known: ${plain(outlook.webhooks_unknown)}`);
  if (!(await confirm('Take this gateway out of service? It stops taking values in.', flags.yes))) {
    print('Nothing was changed.');
    process.exitCode = 1;
    return;
  }
  const outcome = await drained(connection, flags, timeoutMs);
  if (outcome.decommissioned) await ended(place);
  if (flags.json) print(jsonText(outcome));
  tellOutcome(outcome, place.stateDir, (text) => say(flags, text));
}

/** Follows the daemon until it says how it went. Throws what went wrong there. */
async function drained(connection: BufferConnection, flags: Flags, timeoutMs: number): Promise<Outcome> {
  let text = '';
  let outcome: Outcome | undefined;
  const take = async (piece: string) => {
    const lines = (text + piece).split('\n');
    text = lines.pop()!;
    for (const step of lines.map((line) => JSON.parse(line) as DecommissionStep)) {
      if ('failed' in step) {
        const { failed, code, hint } = step;
        throw new TagferryError(`${failed}: this gateway stays in service`, { code, ...(hint ? { hint } : {}) });
      }
      if ('decommissioned' in step) outcome = step;
      else if (!flags.json) process.stderr.write(`${counted(step.waiting, 'value')} to go\n`);
    }
  };
  await connection.stream('decommission/run', { timeout_ms: timeoutMs, lose_values: flags.loseValues === true }, take);
  if (outcome) return outcome;
  throw new TagferryError('the daemon did not say how it ended', { code: 'daemon.broke_off' });
}

/** Resolves when nobody answers any more: the tokens are revoked by then. */
async function ended(place: DaemonPlace): Promise<void> {
  const endMs = systemClock.monotonicMs() + END_PATIENCE_MS;
  while (systemClock.monotonicMs() < endMs) {
    const error = await askDaemon(place, 'session/show').catch((thrown: unknown) => thrown);
    if (error instanceof NoDaemonError) return;
    // The clock's own timers keep no process alive.
    await new Promise((resolve) => setTimeout(resolve, END_LOOK_MS));
  }
}

function say(flags: Flags, text: string): void {
  if (!flags.json) print(text);
}

function print(text: string): void {
  process.stdout.write(`${text}\n`);
}
