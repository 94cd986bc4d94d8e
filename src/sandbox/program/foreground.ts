import { messageOf, TagferryError } from '../../base/errors.ts';
import { isLoopbackHost } from '../../base/listen.ts';
import { createLogger } from '../../base/logger.ts';
import { painter, widthOf } from '../../base/table.ts';
import { SANDBOX_CREDENTIALS, Sandbox } from '../sandbox.ts';
import { addFaults, optionsOf, type SandboxFlags } from './flags.ts';
import { isInForeground, Keyboard } from './keyboard.ts';
import { helpText, keysOf } from './keys.ts';
import { followStory, print } from './story.ts';

/** Runs a sandbox until Ctrl-C or a signal; on a terminal its keys make things happen. */
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
  if (!isOnLoopback(sandbox)) process.stderr.write(`${OPEN_TO_NETWORK}\n`);
  if (!flags.quiet) followStory(sandbox, flags.json === true);
  if (flags.json) print({ event: 'sandbox.listening', url: sandbox.url, adminUrl: sandbox.adminUrl });
  else process.stdout.write(`${greeting(sandbox, flags)}\n`);
  await untilStopped(sandbox, flags);
  await sandbox.stop();
}

const OPEN_TO_NETWORK =
  'warning: the sandbox is open to the network: its credentials are known to everybody, and /sandbox/… needs none. Listen on 127.0.0.1 unless you mean it.';

function isOnLoopback(sandbox: Sandbox): boolean {
  return isLoopbackHost(new URL(sandbox.url).hostname);
}

/** The credentials of the default seed, for the help text and the greeting. */
export function credentialsText(): string {
  return `Credentials of the default seed (they protect nothing):
  CLIENT_ID=${SANDBOX_CREDENTIALS.clientId}  CLIENT_SECRET=${SANDBOX_CREDENTIALS.clientSecret}
  TECHNICAL_USERNAME=${SANDBOX_CREDENTIALS.technicalUsername}  TECHNICAL_PASSWORD=${SANDBOX_CREDENTIALS.technicalPassword}
  CLIENT_APPLICATION=${SANDBOX_CREDENTIALS.clientApplication}
  people: ${SANDBOX_CREDENTIALS.userEmail} with ${SANDBOX_CREDENTIALS.userPassword}`;
}

function greeting(sandbox: Sandbox, flags: SandboxFlags): string {
  const credentials = flags.seed === undefined ? `\n${credentialsText()}` : `\nCredentials: those of ${flags.seed}.`;
  const identity =
    sandbox.identityUrl === sandbox.url ? '' : `\nThe identity application: IDENTITY_URL=${sandbox.identityUrl}`;
  return `The sandbox listens: PLATFORM_URL=${sandbox.url}${identity}${credentials}
Behind the scenes: ${sandbox.adminUrl}/sandbox/ in a browser. Stop with Ctrl-C.`;
}

/**
 * Until SIGINT, SIGTERM, SIGHUP or Ctrl-C. The interval keeps the process alive while the sandbox is offline and owns no
 * socket; and it notices that a job which ran in the background was brought to the foreground, which no signal tells.
 */
async function untilStopped(sandbox: Sandbox, flags: SandboxFlags): Promise<void> {
  // Not Promise.withResolvers, which Node 20 does not know: this is also a program of its own (`sandbox/main.ts`).
  let stop = () => {};
  const stopped = new Promise<void>((resolve) => {
    stop = resolve;
  });
  const signals = ['SIGINT', 'SIGTERM', 'SIGHUP'] as const;
  for (const signal of signals) process.once(signal, stop);
  const hasKeys = process.stdin.isTTY && process.stdout.isTTY && flags.keys && !flags.json;
  const keyboard = hasKeys ? keyboardOf(sandbox, stop, () => wake()) : undefined;
  let isOver = false;
  const wake = () => {
    if (!isOver && keyboard !== undefined && !keyboard.isOn && isInForeground()) keyboard.start();
  };
  process.on('SIGCONT', wake);
  wake();
  const alive = setInterval(wake, keyboard ? 1000 : 60_000);
  await stopped;
  isOver = true;
  process.off('SIGCONT', wake);
  keyboard?.stop();
  clearInterval(alive);
}

function keyboardOf(sandbox: Sandbox, quit: () => void, wake: () => void): Keyboard {
  const keys = keysOf();
  const paint = painter(process.stdout, process.env);
  const say = (text: string) => process.stdout.write(`${paint(text, 'dim')}\n`);
  const help = () => say(helpText(keys, widthOf(process.stdout)));
  help();
  return new Keyboard({
    input: process.stdin,
    quit,
    // To the whole job, as the terminal would: a shell's job may hold more than this process.
    suspend: () => {
      process.kill(0, 'SIGTSTP');
      // Runs once the job goes on; where it could not be stopped (nobody would wake it), at once.
      setTimeout(wake, 100);
    },
    say,
    press: async (pressed) => {
      const key = keys.find((one) => one.key === pressed);
      if (key) say(`${key.key}: ${await key.press(sandbox)}`);
      else help();
    },
  });
}
