/**
 * Stores a user's tokens in `$XDG_STATE_HOME/tagferry/people/<name>-<platform>.json` (default `~/.local/state`), folder
 * 0700, file 0600. The name ends with a digest of the platform addresses and the client ID, so that a token is sent
 * only to the server that issued it.
 *
 * Files are replaced atomically: after a crash the file contains either the old or the new tokens. Only one process
 * renews at a time (`locked`), because a refresh token can be used only once. The lock is an SQLite file lock, which
 * the kernel releases when the process exits.
 */
import { createHash } from 'node:crypto';
import { chmod, mkdir, readFile, rm } from 'node:fs/promises';
import { homedir } from 'node:os';
import { isAbsolute, join } from 'node:path';
import Database from 'better-sqlite3';
import type { Clock } from '../../base/clock.ts';
import { writeDurably } from '../../base/durable-file.ts';
import { codeOf, StoreError, UsageError } from '../../base/errors.ts';

/** Flow that issued a token and determines how the token is renewed and revoked. */
export type SignInFlow = 'pkce' | 'web';

/** Token issuer. Tokens are sent only to their issuer. */
interface Issuer {
  platformUrl: string;
  identityUrl: string;
  clientId: string;
}

export interface StoredPerson {
  flow: SignInFlow;
  accessToken: string;
  refreshToken: string | undefined;
  /**
   * Expiry time by the wall clock. This is only a hint, because clocks can be wrong; a 401 response is authoritative.
   */
  expiresWallMs: number;
}

/** Maximum time to wait for the lock, which is longer than the 20 s deadline for a renewal. */
const LOCK_TIMEOUT_MS = 30_000;
const LOCK_POLL_MS = 50;
const MAX_FILE_CHARS = 100_000;
const NAME = /^[A-Za-z0-9][A-Za-z0-9._@+-]{0,63}$/;

/** `$XDG_STATE_HOME/tagferry`. The XDG specification requires relative paths to be ignored. */
export function personStateFolder(environment: NodeJS.ProcessEnv): string {
  const configured = environment.XDG_STATE_HOME ?? '';
  const base = isAbsolute(configured) ? configured : join(environment.HOME || homedir(), '.local', 'state');
  return join(base, 'tagferry');
}

export class PersonFile {
  readonly #folder: string;
  readonly #path: string;
  readonly #clock: Clock;

  /** `who` distinguishes people who share an account. Throws `UsageError` for an invalid name. */
  constructor(
    environment: NodeJS.ProcessEnv,
    { platformUrl, identityUrl, clientId }: Issuer,
    who: string,
    clock: Clock,
  ) {
    if (!NAME.test(who))
      throw new UsageError(`${JSON.stringify(who)} is not a valid name for --as`, 'Use letters and digits.');
    const place = createHash('sha256')
      .update([platformUrl, identityUrl, clientId].join('\n'))
      .digest('hex')
      .slice(0, 12);
    this.#folder = join(personStateFolder(environment), 'people');
    this.#path = join(this.#folder, `${who}-${place}.json`);
    this.#clock = clock;
  }

  get path(): string {
    return this.#path;
  }

  /** Returns `undefined` if no user is signed in. */
  async read(): Promise<StoredPerson | undefined> {
    let text: string;
    try {
      text = await readFile(this.#path, 'utf8');
    } catch (error) {
      if (codeOf(error) === 'ENOENT') return undefined;
      throw this.#error('cannot read', error);
    }
    const stored = text.length > MAX_FILE_CHARS ? undefined : storedIn(text);
    if (stored === undefined) throw this.#error('no valid tokens in', undefined);
    return stored;
  }

  async write(person: StoredPerson): Promise<void> {
    try {
      await this.#makeFolder();
      await writeDurably(this.#path, `${JSON.stringify({ version: 1, ...person })}\n`, {
        ending: `.${process.pid}.tmp`,
      });
    } catch (error) {
      throw this.#error('cannot write', error);
    }
  }

  async remove(): Promise<void> {
    try {
      await rm(this.#path, { force: true });
      await rm(`${this.#path}.lock`, { force: true });
    } catch (error) {
      throw this.#error('cannot delete', error);
    }
  }

  /** Runs one token change at a time across processes. Throws `person.locked` if another process takes too long. */
  async locked<Result>(act: () => Promise<Result>): Promise<Result> {
    await this.#makeFolder();
    const lock = `${this.#path}.lock`;
    const database = new Database(lock, { timeout: 0 });
    try {
      await chmod(lock, 0o600);
      const endMs = this.#clock.monotonicMs() + LOCK_TIMEOUT_MS;
      while (!acquireLock(database)) {
        if (this.#clock.monotonicMs() > endMs) {
          throw new StoreError('timeout while another tagferry process renews this sign-in', {
            code: 'person.locked',
            retryable: true,
            hint: 'Stop any hung tagferry process, then run the command again.',
          });
        }
        await this.#clock.sleep(LOCK_POLL_MS);
      }
      return await act();
    } finally {
      database.close();
    }
  }

  async #makeFolder(): Promise<void> {
    await mkdir(this.#folder, { recursive: true, mode: 0o700 });
  }

  #error(what: string, cause: unknown): StoreError {
    return new StoreError(`${what} ${this.#path}`, {
      code: 'person.file',
      cause,
      hint: "Check the folder's owner, mode and free space. `tagferry login` rewrites the file.",
    });
  }
}

function acquireLock(database: Database.Database): boolean {
  try {
    database.pragma('journal_mode = MEMORY');
    database.exec('BEGIN EXCLUSIVE');
    return true;
  } catch (error) {
    if (codeOf(error)?.startsWith('SQLITE_BUSY')) return false;
    throw error;
  }
}

/** Discards the parser message, because it quotes the text. */
function storedIn(text: string): StoredPerson | undefined {
  try {
    const { flow, accessToken, refreshToken, expiresWallMs } = JSON.parse(text) as Partial<StoredPerson>;
    const sound =
      (flow === 'pkce' || flow === 'web') &&
      typeof accessToken === 'string' &&
      accessToken !== '' &&
      (refreshToken === undefined || typeof refreshToken === 'string') &&
      typeof expiresWallMs === 'number';
    return sound ? { flow, accessToken, refreshToken, expiresWallMs } : undefined;
  } catch {
    return undefined;
  }
}
