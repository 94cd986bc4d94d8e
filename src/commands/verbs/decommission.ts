import { join } from 'node:path';
import type { Command } from 'commander';
import { counted } from '../../base/amounts.ts';
import { systemClock } from '../../base/clock.ts';
import { messageOf, TagferryError, UsageError } from '../../base/errors.ts';
import { jsonText, plain } from '../../base/foreign-text.ts';
import { version } from '../../base/installation.ts';
import { createLogger } from '../../base/logger.ts';
import { readDuration } from '../../base/quantity.ts';
import { configurationDirectory, readSettingsLeniently } from '../../config/configuration.ts';
import type { Settings } from '../../config/settings.ts';
import type { DecommissionOutlook, DecommissionStep } from '../../control/decommission-routes.ts';
import { SessionFile } from '../../platform/session/live-tokens.ts';
import { decommissionMessage, markDecommissioned } from '../../store/decommission-mark.ts';
import { WebhookRegistration } from '../../webhook/registration.ts';
import { RegistrationFile, WEBHOOK_FILE } from '../../webhook/registration-file.ts';
import { storedSecrets } from '../configuration/credentials.ts';
import { type BufferConnection, openBufferConnection } from '../connection/buffer-connection.ts';
import { type AgentAddress, agentOf, askAgent, configOf, NoAgentError } from '../connection/control-client.ts';
import { lossesOf, lossText, type Outcome, openEvents, reportOutcome } from '../connection/losses.ts';
import { logIn } from '../connection/own-login.ts';
import { confirmChange } from '../terminal/input.ts';
import { print } from '../terminal/output.ts';

interface Flags {
  timeout: string;
  loseValues?: boolean;
  yes?: boolean;
  json?: boolean;
}

/** Agent shutdown takes at most 20 s. */
const SHUTDOWN_TIMEOUT_MS = 40_000;
const SHUTDOWN_POLL_MS = 100;

/** Adds `tagferry decommission`. */
export function define(program: Command): void {
  program
    .command('decommission')
    .description(
      'take this gateway out of service: deliver buffered values, delete the webhook, revoke tokens, mark the state folder',
    )
    .option('--timeout <duration>', 'maximum time to deliver buffered values', '10m')
    .option('--lose-values', 'discard remaining values, and continue if the webhook cannot be deleted')
    .option('--yes', 'skip the confirmation')
    .option('--json', 'print the result as JSON')
    .addHelpText(
      'after',
      '\nIf values remain after the timeout, including quarantined ones, nothing is deleted, the agent ingests values again, and the exit ' +
        'status is 1, unless --lose-values is given. A decommissioned gateway keeps its state folder; `tagferry run` exits with status 78 ' +
        'until `tagferry setup`.',
    )
    .action(async (flags: Flags) => {
      const timeout = readDuration(flags.timeout);
      if (!('value' in timeout)) throw new UsageError(`--timeout ${flags.timeout} ${timeout.reason}`, timeout.instead);
      const config = configOf(program);
      const place = agentOf(program);
      const outlook = await askAgent<DecommissionOutlook>(place, 'decommission/look').catch((error: unknown) => {
        if (error instanceof NoAgentError) return error;
        throw error;
      });
      const isStopped = outlook instanceof NoAgentError;
      const already = decommissionMessage(place.stateDir);
      if (isStopped && already !== undefined) {
        say(flags, already);
        if (flags.json) print(jsonText({ decommissioned: true }));
        return;
      }
      if (!isStopped)
        await decommissionRunning(
          await openBufferConnection(config, process.env),
          place,
          outlook,
          flags,
          timeout.value,
        );
      else {
        await decommissionStopped(
          config,
          { ...place, startHint: outlook.hint ?? '' },
          flags,
          (question) => confirmChange(question, flags.yes),
          (text) => say(flags, text),
        );
      }
    });
}

async function decommissionRunning(
  connection: BufferConnection,
  place: AgentAddress,
  outlook: DecommissionOutlook,
  flags: Flags,
  timeoutMs: number,
): Promise<void> {
  const losses = await lossesOf(connection);
  say(flags, lossText(losses, outlook.events));
  for (const { id, url, own } of outlook.webhooks) {
    const what = own
      ? 'will be deleted'
      : 'has a previous address and will be kept. To delete it, run `tagferry webhook prune`';
    say(flags, `Webhook ${id} (${plain(url)}) ${what}.`);
  }
  if (outlook.webhooks_unknown) say(flags, `Cannot list webhooks: ${plain(outlook.webhooks_unknown)}`);
  if (!(await confirmChange('Take this gateway out of service? It will stop ingesting values.', flags.yes))) return;
  const outcome = await drained(connection, flags, timeoutMs);
  if (outcome.decommissioned) await ended(place);
  if (flags.json) print(jsonText(outcome));
  reportOutcome(outcome, place.stateDir, (text) => say(flags, text));
}

/** Reports the agent's progress until the outcome is known. Throws errors that the agent reports. */
async function drained(connection: BufferConnection, flags: Flags, timeoutMs: number): Promise<Outcome> {
  let text = '';
  let outcome: Outcome | undefined;
  const onText = async (piece: string) => {
    const lines = (text + piece).split('\n');
    text = lines.pop()!;
    for (const step of lines.map((line) => JSON.parse(line) as DecommissionStep)) {
      if ('failed' in step) {
        const { failed, code, hint } = step;
        throw new TagferryError(`${failed}. This gateway remains in service`, { code, hint });
      }
      if ('decommissioned' in step) outcome = step;
      else if (!flags.json) process.stderr.write(`${counted(step.waiting, 'value')} remaining\n`);
    }
  };
  await connection.stream(
    'decommission/run',
    { timeout_ms: timeoutMs, lose_values: flags.loseValues === true },
    onText,
  );
  if (outcome) return outcome;
  throw new TagferryError('the agent exited without reporting the outcome', { code: 'daemon.broke_off' });
}

/** Resolves when the agent has stopped, which revokes its tokens first. */
async function ended(place: AgentAddress): Promise<void> {
  const endMs = systemClock.monotonicMs() + SHUTDOWN_TIMEOUT_MS;
  while (systemClock.monotonicMs() < endMs) {
    const error = await askAgent(place, 'session/show').catch((thrown: unknown) => thrown);
    if (error instanceof NoAgentError) return;
    // Use `setTimeout`, because the clock's timers do not keep the process alive.
    await new Promise((resolve) => setTimeout(resolve, SHUTDOWN_POLL_MS));
  }
}

function say(flags: Flags, text: string): void {
  if (!flags.json) print(text);
}

/**
 * Decommissions a stopped gateway. Its values cannot be delivered, so the buffer must be empty unless --lose-values is
 * given. Locks the state folder throughout, so that no agent starts in the meantime.
 */
export async function decommissionStopped(
  config: string | undefined,
  place: AgentAddress & { startHint: string },
  flags: { loseValues?: boolean; json?: boolean },
  confirm: (question: string) => Promise<boolean>,
  say: (text: string) => void,
): Promise<void> {
  const { stateDir } = place;
  const connection = await openBufferConnection(config, process.env);
  try {
    const losses = await lossesOf(connection);
    const left = losses.values + losses.quarantined;
    if (left > 0 && !flags.loseValues) {
      throw new TagferryError(
        `${counted(left, 'undelivered value')} in ${stateDir}, and no agent is running to deliver them`,
        {
          code: 'decommission.needs_daemon',
          hint: `${place.startHint} Then decommission again, or discard the values with --lose-values.`,
        },
      );
    }
    say(lossText(losses, await openEvents(stateDir)));
    if (!(await confirm('Take this gateway out of service?'))) return;
    const deletion = await deleteWebhook(config, stateDir, flags.loseValues === true);
    const tokens = await revokeLeftTokens(config, stateDir);
    if (tokens !== undefined) say(tokens);
    await markDecommissioned(stateDir, systemClock.wallMs());
    const outcome = { decommissioned: true, waiting: losses.values, quarantined: losses.quarantined, ...deletion };
    if (flags.json) process.stdout.write(`${jsonText(outcome)}\n`);
    reportOutcome(outcome, stateDir, say);
  } finally {
    await connection.close();
  }
}

/** Returns the settings with the service secrets that this user can read. */
async function settingsOf(directory: string): Promise<Settings> {
  const { settings } = readSettingsLeniently({ directory, environment: process.env });
  const stored = await storedSecrets(directory);
  return {
    ...settings,
    clientSecret: settings.clientSecret ?? stored.get('client_secret'),
    technicalPassword: settings.technicalPassword ?? stored.get('technical_password'),
  } as Settings;
}

/**
 * Revokes the tokens of an agent that was killed, because the agent will not start again to revoke them. Returns a
 * sentence about the tokens, if any.
 */
async function revokeLeftTokens(config: string | undefined, stateDir: string): Promise<string | undefined> {
  const file = new SessionFile(stateDir);
  const left = await file.read().catch(() => []);
  if (left.length === 0) return undefined;
  try {
    const login = await logIn(await settingsOf(configurationDirectory(config, process.env)), {
      clock: systemClock,
      version: version(),
    });
    try {
      for (const { accessToken, refreshToken } of left) {
        for (const token of [accessToken, refreshToken]) if (token !== undefined) await login.revokeOther(token);
      }
    } finally {
      await login.revoke().catch(() => {});
      await login.close();
    }
    await file.write([]);
    return `Revoked ${counted(left.length, 'token')} left by an agent that was killed.`;
  } catch (error) {
    return `Failed to revoke ${counted(left.length, 'token')} left by an agent that was killed (${messageOf(error)}). They expire on their own.`;
  }
}

/** Deletes the webhook in a separate session. Throws on failure, unless --lose-values was given. */
async function deleteWebhook(
  config: string | undefined,
  stateDir: string,
  loseValues: boolean,
): Promise<{ webhook?: number; webhook_problem?: string }> {
  const directory = configurationDirectory(config, process.env);
  const settings = await settingsOf(directory);
  const file = new RegistrationFile(join(stateDir, WEBHOOK_FILE));
  const webhook = (await file.read()).record?.webhook;
  if (webhook === undefined || !settings.webhookUrl) return {};
  if (settings.webhookSecret)
    return { webhook_problem: 'it was registered manually (WEBHOOK_SECRET), delete it on the platform' };
  try {
    const login = await logIn(settings, { clock: systemClock, version: version() });
    try {
      const { webhookUrl: url, webhookEvents: eventTypes, clientApplication: application } = settings;
      const log = createLogger({ level: 'silent', format: 'json', fd: 2 });
      const parts = { platform: login.client, file, clock: systemClock, log, redactor: login.redactor };
      const options = { url, secret: undefined, eventTypes, application, reenable: 'never' } as const;
      const registration = new WebhookRegistration(options, parts);
      await registration.load();
      if ((await registration.list()).some((one) => one.own)) await registration.delete();
      return { webhook };
    } finally {
      await login.revoke().catch(() => {});
      await login.close();
    }
  } catch (error) {
    if (loseValues) return { webhook_problem: messageOf(error) };
    throw new TagferryError(`cannot delete webhook ${webhook}: ${messageOf(error)}`, {
      code: 'decommission.webhook',
      hint: 'Nothing was changed. Start the service and decommission again, or use --lose-values to leave the webhook on the platform.',
      cause: error,
    });
  }
}
