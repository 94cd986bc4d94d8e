import type { Command } from 'commander';
import { codeOf, messageOf, TagferryError, UsageError } from '../../base/errors.ts';

/** Where `tagferry sandbox` listens unless told, and where its sub-verbs look for it. */
export const DEFAULT_URL = 'http://127.0.0.1:8480';

/** As far as any answer of the admin API may take; the longest lists come in well under a second. */
const PATIENCE_MS = 15_000;

interface AdminFlags {
  url: string;
  json?: boolean;
}

/** A running sandbox by its admin API (`/sandbox/…`, docs/sandbox.md). */
export class AdminClient {
  readonly #url: string;

  constructor(url: string) {
    const parsed = URL.canParse(url) ? new URL(url) : undefined;
    if (parsed === undefined || !/^https?:$/.test(parsed.protocol)) {
      throw new UsageError(`--url ${url} is no address`, `Write for example --url ${DEFAULT_URL}.`);
    }
    this.#url = parsed.href.replace(/\/$/, '');
  }

  get url(): string {
    return this.#url;
  }

  get<Result>(path: string): Promise<Result> {
    return this.#ask('GET', path, undefined) as Promise<Result>;
  }

  /** Gives the answer's body, `undefined` where it has none. Throws `TagferryError` with the sandbox's own words. */
  send<Result>(
    method: 'POST' | 'PUT' | 'PATCH' | 'DELETE',
    path: string,
    body?: unknown,
    patienceMs = PATIENCE_MS,
  ): Promise<Result> {
    return this.#ask(method, path, body, patienceMs) as Promise<Result>;
  }

  async #ask(method: string, path: string, body: unknown, patienceMs = PATIENCE_MS): Promise<unknown> {
    let response: Response;
    let text: string;
    try {
      response = await fetch(`${this.#url}/sandbox/${path}`, {
        method,
        signal: AbortSignal.timeout(patienceMs),
        ...(body === undefined ? {} : { body: JSON.stringify(body), headers: { 'content-type': 'application/json' } }),
      });
      text = await response.text();
    } catch (error) {
      throw absent(this.#url, error);
    }
    const answer = parsed(text);
    if (response.ok) return answer;
    throw refused(this.#url, response.status, answer);
  }
}

function absent(url: string, error: unknown): TagferryError {
  const cause = (error as { cause?: unknown }).cause ?? error;
  return new TagferryError(`no sandbox answers at ${url}: ${codeOf(cause) ?? messageOf(cause)}`, {
    code: 'sandbox.absent',
    hint: 'Start one with `tagferry sandbox`, or name it with --url (its second address where it has one).',
    cause: error,
  });
}

function refused(url: string, status: number, answer: unknown): TagferryError {
  const errors = (answer as { errors?: { message?: unknown; attribute?: unknown }[] } | undefined)?.errors;
  const first = Array.isArray(errors) ? errors[0] : undefined;
  if (typeof first?.message !== 'string') {
    return new TagferryError(`${url} answered ${status}, which no sandbox does`, {
      code: 'sandbox.foreign',
      hint: 'Something else listens there: name the sandbox with --url.',
    });
  }
  const attribute = typeof first.attribute === 'string' ? `${first.attribute} ` : '';
  return new TagferryError(`${attribute}${first.message}`, { code: 'sandbox.refused' });
}

function parsed(text: string): unknown {
  try {
    return text === '' ? undefined : JSON.parse(text);
  } catch {
    return undefined;
  }
}

/** The flags that every sub-verb has. */
export function adminVerb(command: Command): Command {
  return command.option('--url <address>', 'of the running sandbox', DEFAULT_URL).option('--json', 'print JSON');
}

/** Runs a sub-verb: its flags with those of the verbs above it, and what it prints as text or JSON. */
export async function asAdmin(
  command: Command,
  act: (client: AdminClient, show: (text: string, data: unknown) => void) => Promise<void>,
): Promise<void> {
  const { url, json } = command.optsWithGlobals<AdminFlags>();
  const show = (text: string, data: unknown) => {
    process.stdout.write(`${json ? JSON.stringify(data, null, process.stdout.isTTY ? 2 : 0) : text}\n`);
  };
  await act(new AdminClient(url), show);
}
