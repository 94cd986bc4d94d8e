import { messageOf, TagferryError } from '../../base/errors.ts';
import { plain } from '../../base/foreign-text.ts';
import { isLoopbackHost } from '../../base/listen.ts';
import { createLogger } from '../../base/logger.ts';
import { type RequestEntry, SANDBOX_CREDENTIALS, Sandbox } from '../sandbox.ts';
import { addFaults, optionsOf, type SandboxFlags } from './flags.ts';

/** Runs a sandbox until SIGINT, SIGTERM or SIGHUP. */
export async function runSandbox(flags: SandboxFlags): Promise<void> {
  const sandbox = new Sandbox({ ...optionsOf(flags), log: createLogger({ level: 'warn', format: 'auto', fd: 2 }) });
  addFaults(sandbox, flags);
  try {
    await sandbox.start();
  } catch (error) {
    if (error instanceof TagferryError) throw error;
    throw new TagferryError(`cannot listen on ${flags.listen}: ${messageOf(error)}`, {
      code: 'sandbox.listen_failed',
      hint: 'Choose another address with --listen.',
      cause: error,
    });
  }
  if (!isLoopbackHost(new URL(sandbox.url).hostname)) process.stderr.write(`${OPEN_TO_NETWORK}\n`);
  if (!flags.quiet) printActivity(sandbox, flags.json === true);
  if (flags.json) printJson({ event: 'sandbox.listening', url: sandbox.url, adminUrl: sandbox.adminUrl });
  else process.stdout.write(`${greeting(sandbox, flags)}\n`);
  await stopSignal();
  await sandbox.stop();
}

const OPEN_TO_NETWORK =
  'warning: the sandbox is reachable from the network. Its credentials are public, and /sandbox/… requires none. Listen on 127.0.0.1 unless this is intended.';

/** Returns the credentials in the default seed, for the help text and the startup message. */
export function credentialsText(): string {
  return `Credentials of the default seed (public, without protection):
  CLIENT_ID=${SANDBOX_CREDENTIALS.clientId}  CLIENT_SECRET=${SANDBOX_CREDENTIALS.clientSecret}
  TECHNICAL_USERNAME=${SANDBOX_CREDENTIALS.technicalUsername}  TECHNICAL_PASSWORD=${SANDBOX_CREDENTIALS.technicalPassword}
  CLIENT_APPLICATION=${SANDBOX_CREDENTIALS.clientApplication}
  person: ${SANDBOX_CREDENTIALS.userEmail}, password ${SANDBOX_CREDENTIALS.userPassword}`;
}

function greeting(sandbox: Sandbox, flags: SandboxFlags): string {
  const credentials = flags.seed === undefined ? `\n${credentialsText()}` : `\nCredentials: see ${flags.seed}.`;
  const identity =
    sandbox.identityUrl === sandbox.url ? '' : `\nIdentity application: IDENTITY_URL=${sandbox.identityUrl}`;
  return `Sandbox listening: PLATFORM_URL=${sandbox.url}${identity}${credentials}
Page: ${sandbox.adminUrl}/sandbox/. Press Ctrl-C to stop.`;
}

async function stopSignal(): Promise<void> {
  // Keep the process alive while the sandbox is offline and has no open socket.
  const alive = setInterval(() => {}, 60_000);
  await new Promise<void>((resolve) => {
    for (const signal of ['SIGINT', 'SIGTERM', 'SIGHUP']) process.once(signal, () => resolve());
  });
  clearInterval(alive);
}

/** Prints one line for each request, delivery and other change, as text or JSON. */
function printActivity(sandbox: Sandbox, asJson: boolean): void {
  const printText = (at: string, text: string) => process.stdout.write(`${at.slice(11, 19)}  ${plain(text)}\n`);
  sandbox.requests.onRequest((entry) => {
    if (asJson) printJson({ event: 'sandbox.request', ...entry });
    else printText(entry.at, requestLine(entry));
  });
  sandbox.requests.onHappened((happened) => {
    if (asJson) printJson({ event: 'sandbox.happened', ...happened });
    else printText(happened.at, `— ${happened.text}`);
  });
  sandbox.onDelivery(({ delivery, webhook, answer, nextInMs }) => {
    const at = new Date(sandbox.clock.wallMs()).toISOString();
    const { id, eventType, attempts, status } = delivery;
    if (asJson) {
      printJson({
        event: 'sandbox.delivery',
        at,
        id,
        eventType,
        attempts,
        status,
        webhook: webhook.id,
        answer,
        nextInMs,
      });
      return;
    }
    const retry = nextInMs === undefined ? '' : `, next attempt in ${Math.round(nextInMs / 1000)} s`;
    const end = status === 'failed' ? ', failed' : retry;
    printText(at, `${eventType} sent to webhook ${webhook.id}, attempt ${attempts}: ${answer}${end}`);
  });
}

function printJson(line: object): void {
  process.stdout.write(`${JSON.stringify(line)}\n`);
}

function requestLine(entry: RequestEntry): string {
  const user = entry.user === undefined ? '' : `${entry.user}: `;
  const request = entry.story ?? `${entry.method} ${entry.path}`;
  const response = entry.status === 0 ? 'no response' : String(entry.status);
  const reason = entry.refused === undefined ? '' : `, ${entry.refused}`;
  const fault = entry.fault === undefined ? '' : ` (${entry.fault})`;
  return `${user}${request}: ${response} in ${entry.durationMs} ms${reason}${fault}`;
}
