import { randomUUID } from 'node:crypto';
import { mkdir, readFile, rename } from 'node:fs/promises';
import { dirname } from 'node:path';
import { removeDurably, writeDurably } from '../durable-file.ts';
import { codeOf } from '../errors.ts';
import type { Filters } from './filters.ts';

/** What has to be known of our webhook across restarts. `secret` and `previous` never leave this file and the memory. */
export interface RegistrationRecord {
  webhook: number;
  url: string;
  /** Names this registration: delivery ids count within it. */
  scope: string;
  secret?: string;
  /** The secret before: deliveries under way at a rotation carry its signature. */
  previous?: string;
  /** A reset was begun: the secret here may no longer be the platform's. */
  resetting?: boolean;
  /** The filters that the platform has taken from us: for one that does not show them. */
  filters?: Filters;
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
   * `undefined` where there is none. What cannot be read is set aside, whatever it is, and `onSetAside` is told the new name: the secret
   * is then unknown, and reset.
   */
  async read(onSetAside: (path: string) => void = () => {}): Promise<RegistrationRecord | undefined> {
    const text = await readFile(this.#path, 'utf8').catch((error: unknown) => {
      if (codeOf(error) === 'ENOENT') return undefined;
      if (codeOf(error) === 'EISDIR' || codeOf(error) === 'EACCES') return '';
      throw error;
    });
    if (text === undefined) return undefined;
    const record = parseRecord(text);
    if (record) return record;
    const aside = `${this.#path}.corrupt-${randomUUID()}`;
    await rename(this.#path, aside);
    onSetAside(aside);
    return undefined;
  }

  /** Throws the file system's own error; then the old file is whole. */
  async write(record: RegistrationRecord): Promise<void> {
    await mkdir(dirname(this.#path), { recursive: true, mode: 0o700 });
    await writeDurably(this.#path, `${JSON.stringify(record)}\n`);
  }

  remove(): Promise<void> {
    return removeDurably(this.#path);
  }
}

function parseRecord(text: string): RegistrationRecord | undefined {
  try {
    const found = JSON.parse(text) as Partial<RegistrationRecord> | null;
    if (found === null || typeof found !== 'object') return undefined;
    const { webhook, url, scope, secret, previous, resetting, filters } = found;
    if (typeof webhook !== 'number' || typeof url !== 'string' || typeof scope !== 'string') return undefined;
    return {
      webhook,
      url,
      scope,
      ...(typeof secret === 'string' && secret !== '' ? { secret } : {}),
      ...(typeof previous === 'string' && previous !== '' ? { previous } : {}),
      ...(resetting === true ? { resetting } : {}),
      ...(areFilters(filters) ? { filters } : {}),
    };
  } catch {
    return undefined;
  }
}

function areFilters(found: unknown): found is Filters {
  if (typeof found !== 'object' || found === null) return false;
  return Object.values(found).every((names) => Array.isArray(names) && names.every((name) => typeof name === 'string'));
}
