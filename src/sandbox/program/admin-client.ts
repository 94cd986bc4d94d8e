import type { Command } from 'commander';
import { codeOf, messageOf, TagferryError, UsageError } from '../../base/errors.ts';
import { readDuration } from '../../base/quantity.ts';

/** Default address of `tagferry sandbox`, used by the server and by the verbs. */
export const DEFAULT_URL = 'http://127.0.0.1:8480';

const TIMEOUT_MS = 15_000;

/** Client for the admin API (`/sandbox/…`, docs/reference/sandbox.md) of a running sandbox. */
export class AdminClient {
  readonly #url: string;

  constructor(url: string) {
    const parsed = URL.canParse(url) ? new URL(url) : undefined;
    if (parsed === undefined || !/^https?:$/.test(parsed.protocol)) {
      throw new UsageError(`--url ${url} is not an HTTP URL`, `Use a value such as --url ${DEFAULT_URL}.`);
    }
    this.#url = parsed.href.replace(/\/$/, '');
  }

  /**
   * Returns the response body, or `undefined` if it is empty. Throws a `TagferryError` with the sandbox's error
   * message.
   */
  async send<Result>(method: 'GET' | 'POST' | 'PATCH' | 'DELETE', path: string, body?: object): Promise<Result> {
    let response: Response;
    let text: string;
    try {
      response = await fetch(`${this.#url}/sandbox/${path}`, {
        method,
        signal: AbortSignal.timeout(TIMEOUT_MS),
        ...(body === undefined ? {} : { body: JSON.stringify(body), headers: { 'content-type': 'application/json' } }),
      });
      text = await response.text();
    } catch (error) {
      const cause = (error as { cause?: unknown }).cause ?? error;
      throw new TagferryError(`no sandbox responds at ${this.#url}: ${codeOf(cause) ?? messageOf(cause)}`, {
        code: 'sandbox.absent',
        hint: 'Start one with `tagferry sandbox`, or set its address with --url (the --admin-port address, if configured).',
        cause: error,
      });
    }
    const parsed = jsonOf(text);
    if (!response.ok) throw this.#errorOf(response.status, parsed);
    return parsed as Result;
  }

  #errorOf(status: number, body: unknown): TagferryError {
    const errors = (body as { errors?: { message?: unknown; attribute?: unknown }[] } | undefined)?.errors;
    const first = Array.isArray(errors) ? errors[0] : undefined;
    if (typeof first?.message !== 'string') {
      return new TagferryError(`${this.#url} is not a sandbox: it responded with ${status}`, {
        code: 'sandbox.foreign',
        hint: 'Another program is listening on this address. Set the address of the sandbox with --url.',
      });
    }
    const attribute = typeof first.attribute === 'string' ? `${first.attribute} ` : '';
    return new TagferryError(`${attribute}${first.message}`, { code: 'sandbox.refused' });
  }
}

function jsonOf(text: string): unknown {
  try {
    return text === '' ? undefined : JSON.parse(text);
  } catch {
    return undefined;
  }
}

/** Adds the options that all verbs share. */
export function adminVerb(command: Command): Command {
  return command
    .option('--url <address>', 'address of the running sandbox', DEFAULT_URL)
    .option('--json', 'print JSON');
}

/** Runs a verb. `show` prints a result as text, or as JSON if --json is set. */
export async function asAdmin(
  command: Command,
  act: (client: AdminClient, show: (text: string, data: unknown) => void) => Promise<void>,
): Promise<void> {
  const { url, json } = command.optsWithGlobals<{ url: string; json?: boolean }>();
  const show = (text: string, data: unknown) => {
    process.stdout.write(`${json ? JSON.stringify(data, null, process.stdout.isTTY ? 2 : 0) : text}\n`);
  };
  await act(new AdminClient(url), show);
}

export function wholeNumber(flag: string, text: string): number {
  if (!/^\d{1,9}$/.test(text)) throw new UsageError(`${flag} must be a whole number, not ${text}`);
  return Number(text);
}

/** Parses a duration. Returns milliseconds. */
export function duration(flag: string, text: string): number {
  const reading = readDuration(text);
  if ('value' in reading) return reading.value;
  const hint = reading.instead === undefined ? undefined : `${reading.instead}.`;
  throw new UsageError(`${flag} ${text} ${reading.reason}`, hint);
}
