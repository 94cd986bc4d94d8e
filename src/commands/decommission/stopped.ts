/** `tagferry decommission` without a daemon: nothing can drain, so only an empty buffer, or one that may be lost. */
import { join } from 'node:path';
import { counted } from '../../base/amounts.ts';
import { systemClock } from '../../base/clock.ts';
import { messageOf, TagferryError } from '../../base/errors.ts';
import { jsonText } from '../../base/foreign-text.ts';
import { version } from '../../base/installation.ts';
import { createLogger } from '../../base/logger.ts';
import { configurationDirectory, readSettingsLeniently } from '../../config/configuration.ts';
import type { Settings } from '../../config/settings.ts';
import { SessionFile } from '../../platform/session/session-file.ts';
import { markDecommissioned } from '../../store/decommission-mark.ts';
import { WebhookRegistration } from '../../webhook/registration.ts';
import { RegistrationFile, WEBHOOK_FILE } from '../../webhook/registration-file.ts';
import { openBufferConnection } from '../buffer-connection.ts';
import type { DaemonPlace } from '../control-client.ts';
import { logIn } from '../doctor/own-login.ts';
import { storedSecrets } from '../setup/stored-secrets.ts';
import { lossesOf, lossText, openEvents, tellOutcome } from './outcome.ts';

/** The folder's lock is held throughout: no daemon starts in the middle. */
export async function endStopped(
  config: string | undefined,
  place: DaemonPlace & { startHint: string },
  flags: { loseValues?: boolean; json?: boolean },
  confirm: (question: string) => Promise<boolean>,
  tell: (text: string) => void,
): Promise<void> {
  const { stateDir } = place;
  const connection = await openBufferConnection(config, process.env);
  try {
    const losses = await lossesOf(connection);
    const left = losses.values + losses.quarantined;
    if (left > 0 && !flags.loseValues) {
      throw new TagferryError(
        `${counted(left, 'value')} wait in ${stateDir}, and no daemon runs that could deliver them`,
        {
          code: 'decommission.needs_daemon',
          hint: `${place.startHint} Then decommission again, or discard the values with --lose-values.`,
        },
      );
    }
    tell(lossText(losses, await openEvents(stateDir)));
    if (!(await confirm('Take this gateway out of service?'))) {
      process.stdout.write('Nothing was changed.\n');
      process.exitCode = 1;
      return;
    }
    const gone = await deleteWebhook(config, stateDir, flags.loseValues === true);
    const tokens = await revokeLeftTokens(config, stateDir);
    if (tokens !== undefined) tell(tokens);
    await markDecommissioned(stateDir, systemClock.wallMs());
    const outcome = { decommissioned: true, waiting: losses.values, quarantined: losses.quarantined, ...gone };
    if (flags.json) process.stdout.write(`${jsonText(outcome)}\n`);
    tellOutcome(outcome, stateDir, tell);
  } finally {
    await connection.close();
  }
}

/** With the secrets that the service gets from systemd, as far as this user may read them. */
async function settingsOf(directory: string): Promise<Settings> {
  const { settings } = readSettingsLeniently({ directory, environment: process.env });
  const stored = await storedSecrets(directory);
  return {
    ...settings,
    clientSecret: settings.clientSecret ?? stored.get('client_secret'),
    technicalPassword: settings.technicalPassword ?? stored.get('technical_password'),
  } as Settings;
}

/** Those of a daemon that was killed: the next start would revoke them, and there is none. What became of them, where there were any. */
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
    return `Revoked what a daemon that was killed left: ${counted(left.length, 'token')}.`;
  } catch (error) {
    return `${counted(left.length, 'token')} of a daemon that was killed could not be revoked (${messageOf(error)}): they end by themselves.`;
  }
}

/** By a login of its own. Throws where it fails, unless values may be lost too. */
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
  if (settings.webhookSecret) return { webhook_problem: 'it was registered by hand (WEBHOOK_SECRET): delete it there' };
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
    throw new TagferryError(`webhook ${webhook} could not be deleted: ${messageOf(error)}`, {
      code: 'decommission.webhook',
      hint: 'Nothing was changed. Start the service and decommission again, or leave the webhook there with --lose-values.',
      cause: error,
    });
  }
}
