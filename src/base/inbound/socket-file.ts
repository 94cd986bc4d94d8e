import { lstatSync } from 'node:fs';
import type { Clock } from '../clock.ts';

/**
 * Watches the file of a Unix socket. A server whose file is deleted or replaced still listens, but no program can connect to it:
 * temporary folders are cleaned up by age, and an operator may delete the file by mistake. A server that does not listen is restored at
 * every check, even if its previous file is at the path again. A listening server keeps its inode in use, so no other file can have it.
 *
 * States: closed, watching, restoring. A crash leaves the file, which the next start replaces (`listen`).
 */
export interface SocketFileOptions {
  path: string;
  clock: Clock;
  /** Whether the server listens now; a failed restoration leaves it closed. */
  isListening: () => boolean;
  /** Listens again. Rejects if that is not possible yet; the next check retries. */
  restore: () => Promise<void>;
  restored: () => void;
  failed: (error: unknown) => void;
}

const CHECK_INTERVAL_MS = 5_000;

export class SocketFile {
  readonly #options: SocketFileOptions;
  /** Device and inode of the file that the server listens on. */
  #file: string | undefined;
  #cancelCheck: () => void = () => {};
  #restoring: Promise<void> | undefined;
  #isClosed = false;

  /** Starts watching the file that exists now. */
  constructor(options: SocketFileOptions) {
    this.#options = options;
    this.#file = identityOf(options.path);
    this.#schedule();
  }

  /** Stops watching. Resolves when no restoration is in progress. */
  async close(): Promise<void> {
    this.#isClosed = true;
    this.#cancelCheck();
    await this.#restoring;
  }

  #schedule(): void {
    if (this.#isClosed) return;
    this.#cancelCheck = this.#options.clock.after(CHECK_INTERVAL_MS, () => {
      if (this.#isIntact()) return this.#schedule();
      this.#restoring = this.#restore().finally(() => this.#schedule());
    });
  }

  #isIntact(): boolean {
    const { path, isListening } = this.#options;
    return isListening() && this.#file !== undefined && identityOf(path) === this.#file;
  }

  async #restore(): Promise<void> {
    const { path, restore, restored, failed } = this.#options;
    try {
      await restore();
      this.#file = identityOf(path);
      restored();
    } catch (error) {
      failed(error);
    }
  }
}

function identityOf(path: string): string | undefined {
  try {
    const stats = lstatSync(path, { bigint: true, throwIfNoEntry: false });
    return stats && `${stats.dev}:${stats.ino}`;
  } catch {
    // The folder is not accessible: treated as a missing file.
    return undefined;
  }
}
