/**
 * One person's tokens at rest: `$XDG_STATE_HOME/tagferry/people/<who>-<platform>.json` (else `~/.local/state`), folder 0700, file
 * 0600. The name ends in a digest of the platform's addresses and the client id, so that a token is never shown to another
 * server than the one that gave it.
 *
 * Written as a temporary file, synced, renamed: a crash at any point leaves the old tokens or the new ones. Two verbs at
 * once renew one after the other (`locked`), because a refresh token is good for one use; the lock is SQLite's file lock,
 * which the kernel lets go of however the process ends.
 */
import { createHash } from 'node:crypto';
import { chmod, mkdir, readFile, rm } from 'node:fs/promises';
import { homedir } from 'node:os';
import { isAbsolute, join } from 'node:path';
import Database from 'better-sqlite3';
import type { Clock } from '../../base/clock.ts';
import { writeDurably } from '../../base/durable-file.ts';
import { codeOf, StoreError, UsageError } from '../../base/errors.ts';
import type { PersonSettings, SignInFlow } from './person-settings.ts';

export interface StoredPerson {
  flow: SignInFlow;
  accessToken: string;
  refreshToken: string | undefined;
  /** Wall clock; a hint only, because clocks are set: a 401 decides. */
  expiresWallMs: number;
}

/** Longer than a renewal can take with its deadline of 20 s. */
const LOCK_PATIENCE_MS = 30_000;
const LOCK_LOOK_MS = 50;
const MAX_FILE_CHARS = 100_000;
const NAME = /^[A-Za-z0-9][A-Za-z0-9._@+-]{0,63}$/;

/** `$XDG_STATE_HOME/tagferry`; the XDG specification has relative paths ignored. */
export function personStateFolder(environment: NodeJS.ProcessEnv): string {
  const given = environment.XDG_STATE_HOME ?? '';
  const base = isAbsolute(given) ? given : join(environment.HOME || homedir(), '.local', 'state');
  return join(base, 'tagferry');
}

export class PersonFile {
  readonly #folder: string;
  readonly #path: string;
  readonly #clock: Clock;

  /** `who` tells several people of one account apart. Throws `UsageError` for a name that is no file name. */
  constructor(
    environment: NodeJS.ProcessEnv,
    settings: Pick<PersonSettings, 'platformUrl' | 'identityUrl' | 'clientId'>,
    who: string,
    clock: Clock,
  ) {
    if (!NAME.test(who)) throw new UsageError(`${JSON.stringify(who)} is no name for --as`, 'Use letters and digits.');
    const { platformUrl, identityUrl, clientId } = settings;
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

  /** The tokens; `undefined` where nobody is signed in. */
  async read(): Promise<StoredPerson | undefined> {
    let text: string;
    try {
      text = await readFile(this.#path, 'utf8');
    } catch (error) {
      if (codeOf(error) === 'ENOENT') return undefined;
      throw this.#error('cannot be read', error);
    }
    const stored = text.length > MAX_FILE_CHARS ? undefined : storedIn(text);
    if (stored === undefined) throw this.#error('holds something else than tokens', undefined);
    return stored;
  }

  async write(person: StoredPerson): Promise<void> {
    try {
      await this.#makeFolder();
      await writeDurably(this.#path, `${JSON.stringify({ version: 1, ...person })}\n`, `.${process.pid}.tmp`);
    } catch (error) {
      throw this.#error('cannot be written', error);
    }
  }

  async remove(): Promise<void> {
    try {
      await rm(this.#path, { force: true });
      await rm(`${this.#path}.lock`, { force: true });
    } catch (error) {
      throw this.#error('cannot be removed', error);
    }
  }

  /** Runs one change of the tokens at a time, over all processes. Throws `person.locked` where another takes too long. */
  async locked<Result>(act: () => Promise<Result>): Promise<Result> {
    await this.#makeFolder();
    const lock = `${this.#path}.lock`;
    const database = new Database(lock, { timeout: 0 });
    try {
      await chmod(lock, 0o600);
      const endMs = this.#clock.monotonicMs() + LOCK_PATIENCE_MS;
      while (!takes(database)) {
        if (this.#clock.monotonicMs() > endMs) {
          throw new StoreError('another tagferry has been renewing this sign-in for too long', {
            code: 'person.locked',
            retryable: true,
            hint: 'Look for a tagferry that hangs, and try again.',
          });
        }
        await this.#clock.sleep(LOCK_LOOK_MS);
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
    return new StoreError(`${this.#path} ${what}`, {
      code: 'person.file',
      cause,
      hint: 'Check owner, mode and free space of the folder; `tagferry login` writes the file anew.',
    });
  }
}

function takes(database: Database.Database): boolean {
  try {
    database.pragma('journal_mode = MEMORY');
    database.exec('BEGIN EXCLUSIVE');
    return true;
  } catch (error) {
    if (codeOf(error)?.startsWith('SQLITE_BUSY')) return false;
    throw error;
  }
}

/** The parser's message would quote the text, so nothing of it is kept. */
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
