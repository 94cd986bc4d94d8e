import { readFile } from 'node:fs/promises';
import { join } from 'node:path';
import { removeDurably, writeDurably } from '../../base/durable-file.ts';
import { codeOf, StoreError } from '../../base/errors.ts';

export const SESSION_FILE = 'session.json';

/** Stored token pair. */
export interface StoredToken {
  accessToken: string;
  refreshToken: string | undefined;
  /** Wall-clock expiry of the access token. Only a hint, because the clock may be wrong at the next startup. */
  expiresWallMs: number;
}

/**
 * Stores the valid tokens in `session.json` in the state folder (mode 0600), so that they can be revoked after a crash.
 * Stored tokens are never used to continue a session. A temporary file is written, synced and renamed, so a crash
 * leaves either the old or the new file. Writes are serialized.
 */
export class SessionFile {
  readonly #path: string;
  #last: Promise<unknown> = Promise.resolve();

  constructor(stateDir: string) {
    this.#path = join(stateDir, SESSION_FILE);
  }

  /**
   * Returns the tokens of the previous run, or an empty list if the file does not exist. Throws `StoreError` if the
   * file cannot be read.
   */
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
      // The parser error is not attached as the cause, because its message quotes the text, which contains tokens.
      throw this.#error('does not contain tokens', undefined);
    }
  }

  /** Replaces the file, or removes it if there are no tokens. */
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
      hint: 'Check the owner, mode and free space of STATE_DIR.',
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
