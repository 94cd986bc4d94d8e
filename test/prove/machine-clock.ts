import { existsSync, readdirSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';

/** Wall clock of a process, set by a file with Debian's libfaketime. The monotonic clock is unchanged. */
export class MachineClock {
  readonly library: string;
  readonly #file: string;

  constructor(folder: string) {
    this.library = findLibrary();
    this.#file = join(folder, 'wall-clock');
    this.set(0);
  }

  get environment(): Record<string, string> {
    return {
      FAKETIME_TIMESTAMP_FILE: this.#file,
      FAKETIME_NO_CACHE: '1',
      FAKETIME_DONT_FAKE_MONOTONIC: '1',
      NO_FAKE_STAT: '1',
    };
  }

  /** Sets the offset from this machine's clock, for the running process and its next start. */
  set(offsetMs: number): void {
    writeFileSync(this.#file, `${offsetMs < 0 ? '-' : '+'}${Math.abs(Math.round(offsetMs / 1000))}s\n`);
  }

  /** Sets the clock to 1970, as after a boot without a battery-backed clock. */
  to1970(): void {
    this.set(60_000 - Date.now());
  }
}

function findLibrary(): string {
  for (const folder of readdirSync('/usr/lib')) {
    const path = join('/usr/lib', folder, 'faketime/libfaketimeMT.so.1');
    if (existsSync(path)) return path;
  }
  throw new Error('the clock faults need libfaketime (apt-get install faketime)');
}
