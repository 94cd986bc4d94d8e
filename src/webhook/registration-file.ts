import { randomUUID } from 'node:crypto';
import { mkdir, readFile, rename } from 'node:fs/promises';
import { dirname } from 'node:path';
import { removeDurably, writeDurably } from '../base/durable-file.ts';
import { codeOf } from '../base/errors.ts';
import type { Filters } from './filters.ts';

export const WEBHOOK_FILE = 'webhook.json';

/** Record of this gateway's webhook. `secret` and `previous` are stored only in this file and in memory. */
export interface RegistrationRecord {
  webhook: number;
  url: string;
  /** Identifies this registration, within which delivery IDs are unique. */
  scope: string;
  secret?: string | undefined;
  /** Previous secret, for deliveries that are in progress during a rotation. */
  previous?: string | undefined;
  /** Expiry of the previous secret, according to the wall clock. */
  previousUntilMs?: number | undefined;
  /** Whether a reset was requested, so that the secret may be invalid. */
  resetting?: boolean | undefined;
  /** Event types and filters that the platform accepted. Required for platforms that do not list them. */
  eventTypes?: readonly string[] | undefined;
  filters?: Filters | undefined;
  /**
   * Time of the latest failed delivery because of which the webhook was enabled again, according to the platform clock,
   * in milliseconds.
   */
  failuresUntilMs?: number | undefined;
}

/**
 * Command for this gateway's webhook: `disable` or `enable` until the platform has accepted the change; then `disabled`
 * or undefined.
 */
export type Decision = 'disable' | 'disabled' | 'enable';

/** This gateway's webhook, found on the platform. */
export interface Registered {
  application: number;
  webhook: number;
  scope: string;
}

/** A webhook that this gateway registered. */
export interface MadeWebhook {
  webhook: number;
  url: string;
}

export interface KnownRegistration {
  record?: RegistrationRecord | undefined;
  made: readonly MadeWebhook[];
  /** URL of a registration in progress. */
  making?: string | undefined;
  decision?: Decision | undefined;
}

/**
 * The file `STATE_DIR/webhook.json` (mode 0600), which is replaced atomically. It is separate from the inbox, because
 * the inbox may be copied for a bug report.
 */
export class RegistrationFile {
  readonly #path: string;

  constructor(path: string) {
    this.#path = path;
  }

  /**
   * Returns an empty record if the file does not exist. Renames an unreadable file and calls `onSetAside` with its new
   * name.
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

  /**
   * Replaces the file, or deletes it if the record is empty. If it throws a file system error, the previous file is
   * unchanged.
   */
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
      record,
      made: Array.isArray(made) ? made.filter(isMade) : [],
      making: typeof making === 'string' ? making : undefined,
      decision: isDecision(decision) ? decision : undefined,
    };
  } catch {
    return undefined;
  }
}

function parseRecord(found: Partial<RegistrationRecord>): RegistrationRecord | undefined {
  const { webhook, url, scope, previousUntilMs, resetting, eventTypes, filters, failuresUntilMs } = found;
  if (typeof webhook !== 'number' || typeof url !== 'string' || typeof scope !== 'string') return undefined;
  return {
    webhook,
    url,
    scope,
    secret: textOf(found.secret),
    previous: textOf(found.previous),
    previousUntilMs: numberOf(previousUntilMs),
    resetting: resetting === true ? true : undefined,
    eventTypes: areNames(eventTypes) ? eventTypes : undefined,
    filters: areFilters(filters) ? filters : undefined,
    failuresUntilMs: numberOf(failuresUntilMs),
  };
}

function textOf(found: unknown): string | undefined {
  return typeof found === 'string' && found !== '' ? found : undefined;
}

function numberOf(found: unknown): number | undefined {
  return typeof found === 'number' ? found : undefined;
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
