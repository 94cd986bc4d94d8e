import { readFileSync } from 'node:fs';
import { messageOf, UsageError } from '../../base/errors.ts';
import type { HarEntry } from '../recording/har.ts';
import type { AdminClient } from './admin-client.ts';
import { recordsOf } from './named-records.ts';

/** One request that was answered otherwise than the record says. */
interface Difference {
  id: number;
  method: string;
  path: string;
  recorded: string;
  now: string;
}

export interface Replayed {
  sent: number;
  /** Recorded while a fault had a hand in it: what was answered says nothing of the service. */
  skipped: number;
  differences: Difference[];
}

/** A record (one HAR entry a line) or a HAR file, in the order in which the requests began. Throws `UsageError` for anything else. */
export function readRecord(file: string): HarEntry[] {
  try {
    const text = readFileSync(file, 'utf8').trim();
    const whole = /^\{\s*"log"/.test(text) ? JSON.parse(text).log.entries : undefined;
    const lines = text === '' ? [] : text.split('\n');
    const entries: HarEntry[] = whole ?? lines.map((line) => JSON.parse(line));
    for (const { request, startedDateTime } of entries) {
      if (!URL.canParse(request.url) || Number.isNaN(Date.parse(startedDateTime)))
        throw new Error('no address or time');
    }
    return entries.sort((a, b) => Date.parse(a.startedDateTime) - Date.parse(b.startedDateTime));
  } catch (error) {
    throw new UsageError(`${file} is no record: ${messageOf(error)}`, 'Make one with `record`, or --record.');
  }
}

/**
 * Sends recorded requests again, one after another, and compares status and content type with the record. Tokens and codes are those
 * that the sandbox gives out this time, in the places of the recorded ones, which their fingerprints tell; passwords and secrets are
 * looked up behind the scenes. What was refused for a wrong one is sent with a wrong one again.
 */
export async function replay(client: AdminClient, entries: readonly HarEntry[], paced: boolean): Promise<Replayed> {
  const credentials = await Credentials.of(client);
  const done: Replayed = { sent: 0, skipped: 0, differences: [] };
  let lastMs: number | undefined;
  for (const entry of entries) {
    const atMs = Date.parse(entry.startedDateTime);
    if (paced && lastMs !== undefined) await new Promise((resolve) => setTimeout(resolve, atMs - lastMs!));
    lastMs = atMs;
    const target = new URL(entry.request.url);
    const address = `${client.url}${target.pathname}${credentials.filled(target.search, entry)}`;
    const response = await fetch(address, {
      method: entry.request.method,
      headers: headersOf(entry, credentials),
      redirect: 'manual',
      signal: AbortSignal.timeout(30_000),
      ...bodyOf(entry, credentials),
    });
    const text = await response.text();
    done.sent++;
    credentials.learn(entry, response, text);
    if (entry._fault !== undefined || entry.response.status === 0) done.skipped++;
    else compare(entry, response, target.pathname, done.differences);
  }
  return done;
}

/** What belongs to a connection and not to a request, and what the body is no longer. */
const OWN_HEADERS =
  /^(host|connection|content-length|content-encoding|transfer-encoding|accept-encoding|expect|keep-alive)$/i;

function headersOf(entry: HarEntry, credentials: Credentials): [string, string][] {
  return entry.request.headers
    .filter(({ name }) => !OWN_HEADERS.test(name))
    .map(({ name, value }) => [name, /^authorization$/i.test(name) ? credentials.header(value, entry) : value]);
}

function bodyOf(entry: HarEntry, credentials: Credentials): { body?: string } {
  const { postData, method } = entry.request;
  if (postData === undefined || method === 'GET' || method === 'HEAD') return {};
  const isForm = /x-www-form-urlencoded/i.test(postData.mimeType);
  return { body: isForm ? credentials.filled(postData.text, entry) : postData.text };
}

function compare(entry: HarEntry, response: Response, path: string, differences: Difference[]): void {
  const typeOf = (text: string) => text.split(';')[0]!.trim().toLowerCase();
  const recordedType = typeOf(entry.response.headers.find(({ name }) => name === 'content-type')?.value ?? '');
  const nowType = typeOf(response.headers.get('content-type') ?? '');
  const recorded = `${entry.response.status} ${recordedType}`.trim();
  const now = `${response.status} ${nowType}`.trim();
  if (recorded !== now) differences.push({ id: entry._id, method: entry.request.method, path, recorded, now });
}

/** What stands in place of the masked secrets of a record. */
class Credentials {
  readonly #passwords: ReadonlyMap<string, string>;
  readonly #secrets: ReadonlyMap<string, string>;
  /** Tokens and codes of now by the masked ones of the record. */
  readonly #tokens = new Map<string, string>();

  private constructor(passwords: ReadonlyMap<string, string>, secrets: ReadonlyMap<string, string>) {
    this.#passwords = passwords;
    this.#secrets = secrets;
  }

  static async of(client: AdminClient): Promise<Credentials> {
    const users = await recordsOf(client, 'users');
    const keys = await recordsOf(client, 'api_keys');
    return new Credentials(
      new Map(users.map(({ email, password }) => [String(email).toLowerCase(), String(password)])),
      new Map(keys.map(({ client_id, client_secret }) => [String(client_id), String(client_secret)])),
    );
  }

  /** A header `Authorization` with what it stood for. */
  header(value: string, entry: HarEntry): string {
    const [, scheme, rest] = /^(\S+) (.*)$/s.exec(value) ?? [];
    if (scheme === undefined || rest === undefined) return value;
    if (/^bearer$/i.test(scheme)) return `${scheme} ${this.#tokens.get(rest) ?? rest}`;
    if (!/^basic$/i.test(scheme)) return value;
    const id = rest.slice(0, rest.lastIndexOf(':'));
    const secret = entry.response.status === 401 ? undefined : this.#secrets.get(id);
    return `${scheme} ${Buffer.from(`${id}:${secret ?? 'wrong'}`).toString('base64')}`;
  }

  /** A form or a query. */
  filled(text: string, entry: HarEntry): string {
    if (!text.includes('***')) return text;
    const form = new URLSearchParams(text);
    for (const [name, value] of [...form]) {
      if (!value.startsWith('***')) continue;
      const isWrong = entry.response.status >= 400;
      const secret = this.#secrets.get(form.get('client_id') ?? '');
      const password = this.#passwords.get((form.get('username') ?? '').toLowerCase());
      if (name === 'client_secret') form.set(name, (entry.response.status === 401 ? undefined : secret) ?? 'wrong');
      else if (name === 'password') form.set(name, (isWrong ? undefined : password) ?? 'wrong');
      else form.set(name, this.#tokens.get(value) ?? value);
    }
    return text.startsWith('?') ? `?${form}` : form.toString();
  }

  /** Lays what was given out this time beside what the record says was given out then. */
  learn(entry: HarEntry, response: Response, text: string): void {
    const recorded = jsonMembers(entry.response.content.text ?? '');
    const now = jsonMembers(text);
    for (const name of ['access_token', 'refresh_token']) this.#lay(recorded[name], now[name]);
    const codeIn = (address: string) => (URL.canParse(address) ? new URL(address).searchParams.get('code') : undefined);
    this.#lay(codeIn(entry.response.redirectURL), codeIn(response.headers.get('location') ?? ''));
  }

  #lay(recorded: unknown, now: unknown): void {
    if (typeof recorded === 'string' && typeof now === 'string') this.#tokens.set(recorded, now);
  }
}

function jsonMembers(text: string): Record<string, unknown> {
  try {
    const value: unknown = JSON.parse(text);
    return typeof value === 'object' && value !== null ? (value as Record<string, unknown>) : {};
  } catch {
    return {};
  }
}
