import { lstatSync } from 'node:fs';
import type { Clock } from '../clock.ts';

/**
 * Watches a Unix socket file. If the file is deleted or replaced, for example by a cleanup of temporary folders, the
 * server still listens but is unreachable. A server that is not listening is restored at the next check, even if its
 * previous file exists again. The inode of a listening server cannot be reused by another file.
 *
 * States: closed, watching, restoring. After a crash, the next startup replaces the file (`listen`).
 */
export interface SocketFileOptions {
  path: string;
  clock: Clock;
  /** Returns whether the server is listening, which is not the case after a failed restoration. */
  isListening: () => boolean;
  /** Starts listening again. Rejects if that is not possible yet; the next check retries. */
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

  /** Starts watching the current file. */
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
    // An inaccessible folder is treated as a missing file.
    return undefined;
  }
}
