import { readFile } from 'node:fs/promises';
import { join } from 'node:path';
import { removeDurably, writeDurably } from '../../base/durable-file.ts';
import { codeOf, StoreError } from '../../base/errors.ts';

export const SESSION_FILE = 'session.json';

/** One pair of tokens at rest. */
export interface StoredToken {
  accessToken: string;
  refreshToken: string | undefined;
  /** Wall clock at which the access token ends: a hint for the next start, which may be in another year. */
  expiresWallMs: number;
}

/**
 * `session.json` in the state folder, 0600: the tokens that are alive, so that those a crash left behind can be revoked.
 * It is never used to go on with a session. Written as a temporary file, synced, renamed: a crash at any point leaves
 * the old file or the new one. Writes follow one another.
 */
export class SessionFile {
  readonly #path: string;
  #last: Promise<unknown> = Promise.resolve();

  constructor(stateDir: string) {
    this.#path = join(stateDir, SESSION_FILE);
  }

  /** What the last run left; nothing where there is no file. A file that cannot be read throws `StoreError`. */
  async read(): Promise<StoredToken[]> {
    let text: string;
    try {
      text = await readFile(this.#path, 'utf8');
    } catch (error) {
      if (codeOf(error) === 'ENOENT') return [];
      throw this.#error('cannot be read', error);
    }
    try {
      const body = JSON.parse(text) as { tokens?: unknown };
      if (!Array.isArray(body.tokens)) throw new TypeError('no list of tokens');
      return body.tokens.filter(isStored);
    } catch {
      // The parser's message quotes the text, so it is no cause: the text holds tokens.
      throw this.#error('holds something else than tokens', undefined);
    }
  }

  /** Replaces the file; with no token left there is no file. */
  write(tokens: readonly StoredToken[]): Promise<void> {
    const next = this.#last.then(() => (tokens.length === 0 ? this.#remove() : this.#replace(tokens)));
    this.#last = next.catch(() => undefined);
    return next;
  }

  async #replace(tokens: readonly StoredToken[]): Promise<void> {
    try {
      await writeDurably(this.#path, `${JSON.stringify({ version: 1, tokens })}\n`);
    } catch (error) {
      throw this.#error('cannot be written', error);
    }
  }

  async #remove(): Promise<void> {
    try {
      await removeDurably(this.#path);
    } catch (error) {
      throw this.#error('cannot be removed', error);
    }
  }

  #error(what: string, cause: unknown): StoreError {
    return new StoreError(`${this.#path} ${what}`, {
      code: 'session.file',
      retryable: true,
      cause,
      hint: 'Check owner, mode and free space of STATE_DIR.',
    });
  }
}

function isStored(entry: unknown): entry is StoredToken {
  const token = entry as Partial<StoredToken> | null;
  return (
    typeof token?.accessToken === 'string' &&
    token.accessToken !== '' &&
    (token.refreshToken === undefined || typeof token.refreshToken === 'string') &&
    typeof token.expiresWallMs === 'number'
  );
}
