import { randomUUID } from 'node:crypto';
import { mkdir, readFile, rename } from 'node:fs/promises';
import { dirname } from 'node:path';
import { removeDurably, writeDurably } from '../base/durable-file.ts';
import { codeOf } from '../base/errors.ts';
import type { Filters } from './filters.ts';

export const WEBHOOK_FILE = 'webhook.json';

/** What has to be known of our webhook across restarts. `secret` and `previous` never leave this file and the memory. */
export interface RegistrationRecord {
  webhook: number;
  url: string;
  /** Names this registration: delivery ids count within it. */
  scope: string;
  secret?: string;
  /** The secret before: deliveries under way at a rotation carry its signature. */
  previous?: string;
  /** Wall clock: until when the previous one counts. */
  previousUntilMs?: number;
  /** A reset was begun: the secret here may no longer be the platform's. */
  resetting?: boolean;
  /** Event types and filters that the platform accepted from this gateway: for one that does not show them. */
  eventTypes?: readonly string[];
  filters?: Filters;
  /** Platform's clock: last failed delivery that led to enabling the webhook again, in milliseconds. */
  failuresUntilMs?: number;
}

/** A command that applies to this gateway's webhook: `disable` and `enable` until the platform has accepted it, then `disabled` or none. */
export type Decision = 'disable' | 'disabled' | 'enable';

/** This gateway's webhook, found on the platform. */
export interface Registered {
  application: number;
  webhook: number;
  scope: string;
}

/** A webhook that this gateway registered itself, whatever became of it. */
export interface MadeWebhook {
  webhook: number;
  url: string;
}

export interface KnownRegistration {
  record?: RegistrationRecord;
  made: readonly MadeWebhook[];
  /** An address that was to be registered: a crash may have come before its number was known. */
  making?: string;
  decision?: Decision;
}

/**
 * `STATE_DIR/webhook.json`, 0600. Every change is a new file that is synced and then renamed over the old one, so that a crash
 * leaves the one or the other whole. Not in the inbox's database: a person may copy that for a report.
 */
export class RegistrationFile {
  readonly #path: string;

  constructor(path: string) {
    this.#path = path;
  }

  /**
   * Nothing where there is none. What cannot be read is set aside, whatever it is, and `onSetAside` is told the new name: the secret
   * is then unknown, and reset.
   */
  async read(onSetAside: (path: string) => void = () => {}): Promise<KnownRegistration> {
    const text = await readFile(this.#path, 'utf8').catch((error: unknown) => {
      if (codeOf(error) === 'ENOENT') return undefined;
      if (codeOf(error) === 'EISDIR' || codeOf(error) === 'EACCES') return '';
      throw error;
    });
    if (text === undefined) return { made: [] };
    const known = parseKnown(text);
    if (known) return known;
    const aside = `${this.#path}.corrupt-${randomUUID()}`;
    await rename(this.#path, aside);
    onSetAside(aside);
    return { made: [] };
  }

  /** Without anything to know there is no file. Throws the file system's own error; then the old file is whole. */
  async write({ record, made, making, decision }: KnownRegistration): Promise<void> {
    if (!record && made.length === 0 && making === undefined && decision === undefined)
      return removeDurably(this.#path);
    await mkdir(dirname(this.#path), { recursive: true, mode: 0o700 });
    await writeDurably(this.#path, `${JSON.stringify({ ...record, made, making, decision })}\n`);
  }
}

function parseKnown(text: string): KnownRegistration | undefined {
  try {
    const found: unknown = JSON.parse(text);
    if (typeof found !== 'object' || found === null) return undefined;
    const { made, making, decision, ...rest } = found as { made?: unknown; making?: unknown; decision?: unknown };
    const record = parseRecord(rest);
    if (!record && !Array.isArray(made) && making === undefined) return undefined;
    return {
      ...(record ? { record } : {}),
      made: Array.isArray(made) ? made.filter(isMade) : [],
      ...(typeof making === 'string' ? { making } : {}),
      ...(isDecision(decision) ? { decision } : {}),
    };
  } catch {
    return undefined;
  }
}

function parseRecord(found: Partial<RegistrationRecord>): RegistrationRecord | undefined {
  const { webhook, url, scope, secret, previous, previousUntilMs, resetting, eventTypes, filters, failuresUntilMs } =
    found;
  if (typeof webhook !== 'number' || typeof url !== 'string' || typeof scope !== 'string') return undefined;
  return {
    webhook,
    url,
    scope,
    ...(typeof secret === 'string' && secret !== '' ? { secret } : {}),
    ...(typeof previous === 'string' && previous !== '' ? { previous } : {}),
    ...(typeof previousUntilMs === 'number' ? { previousUntilMs } : {}),
    ...(resetting === true ? { resetting } : {}),
    ...(areNames(eventTypes) ? { eventTypes } : {}),
    ...(areFilters(filters) ? { filters } : {}),
    ...(typeof failuresUntilMs === 'number' ? { failuresUntilMs } : {}),
  };
}

function isMade(found: unknown): found is MadeWebhook {
  const { webhook, url } = (found ?? {}) as Partial<MadeWebhook>;
  return typeof webhook === 'number' && typeof url === 'string';
}

function isDecision(found: unknown): found is Decision {
  return found === 'disable' || found === 'disabled' || found === 'enable';
}

function areFilters(found: unknown): found is Filters {
  if (typeof found !== 'object' || found === null) return false;
  return Object.values(found).every(areNames);
}

function areNames(found: unknown): found is string[] {
  return Array.isArray(found) && found.every((name) => typeof name === 'string');
}
