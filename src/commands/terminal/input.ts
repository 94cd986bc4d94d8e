/** Parses command options, asks for confirmation and opens a browser. */
import { spawn } from 'node:child_process';
import { createInterface } from 'node:readline/promises';
import { systemClock } from '../../base/clock.ts';
import { UsageError } from '../../base/errors.ts';
import { readDuration } from '../../base/quantity.ts';
import { parseIsoTime } from '../../sources/intake/text-parsers.ts';

/** Throws `UsageError` unless the text is a positive integer. */
export function positiveInteger(name: string, text: string): number {
  if (/^\d{1,15}$/.test(text) && Number(text) > 0) return Number(text);
  throw new UsageError(`${name} must be a positive integer, not ${JSON.stringify(text)}`);
}

/**
 * Parses a date, or a duration before now. Returns milliseconds since 1970. Throws `UsageError` if the text is invalid.
 */
export function timeOption(name: string, text: string): number {
  const atMs = parseIsoTime(text);
  if (Number.isFinite(atMs)) return atMs;
  const age = readDuration(text);
  if ('value' in age) return systemClock.wallMs() - age.value;
  throw new UsageError(
    `${name} ${JSON.stringify(text)} ${age.reason}`,
    `Specify a date, or a duration: ${age.instead}.`,
  );
}

/**
 * Asks a yes/no question on standard error, because standard output contains data. Only `y` and `yes` confirm. Throws
 * `UsageError` if there is no terminal.
 */
export async function confirm(question: string, yes: boolean | undefined): Promise<boolean> {
  if (yes) return true;
  if (!process.stdin.isTTY)
    throw new UsageError(`${question} Confirmation requires a terminal`, 'Use --yes to confirm.');
  const terminal = createInterface({ input: process.stdin, output: process.stderr });
  try {
    return /^y(es)?$/i.test((await terminal.question(`${question} [y/N] `)).trim());
  } finally {
    terminal.close();
  }
}

/** Like `confirm`. Without confirmation, prints that nothing was changed and sets exit status 1. */
export async function confirmChange(question: string, yes: boolean | undefined): Promise<boolean> {
  if (await confirm(question, yes)) return true;
  process.stderr.write('Nothing was changed.\n');
  process.exitCode = 1;
  return false;
}

/** Returns whether this session has a desktop: it is not an SSH session and has a display. */
export function hasBrowser(environment: NodeJS.ProcessEnv, platform: NodeJS.Platform = process.platform): boolean {
  if (environment.SSH_CONNECTION || environment.SSH_TTY) return false;
  return platform === 'darwin' || Boolean(environment.DISPLAY || environment.WAYLAND_DISPLAY);
}

/** Opens a URL in the desktop's browser, without a shell. Returns false if the command that opens URLs is missing. */
export function openBrowser(address: URL): Promise<boolean> {
  const program = process.platform === 'darwin' ? 'open' : 'xdg-open';
  return new Promise((resolve) => {
    const child = spawn(program, [address.href], { detached: true, stdio: 'ignore' });
    child.once('error', () => resolve(false));
    child.once('spawn', () => resolve(true));
    child.unref();
  });
}
