import { readdir, stat } from 'node:fs/promises';
import { join } from 'node:path';
import { changedFiles, type FileIdentity, filesDigest } from '../config/configuration-digest.ts';

const FOLDERS = ['', 'agent.env.d', 'tags.d', 'reactions.d'];
const FILES =
  /(?:^|\/)(?:agent\.env|tags\.yaml|reactions\.yaml)$|^[a-z]+\.env\.d\/.*\.env$|^(?:tags|reactions)\.d\/.*\.yaml$/;
/** As the configuration reads them from each folder. */
const MAX_FILES = 1000;

/**
 * Compares the configuration files on disk with those in force. A look reads the times of the files without blocking the event loop,
 * and the files themselves (in a thread) only if a time has changed.
 */
export class ConfigurationDisk {
  readonly #directory: string;
  readonly #read: () => Promise<readonly FileIdentity[]>;
  #marks = '';
  #loaded: readonly FileIdentity[];
  #onDisk: readonly FileIdentity[] | undefined;
  #look: Promise<void> | undefined;

  constructor(directory: string, loaded: readonly FileIdentity[], read: () => Promise<readonly FileIdentity[]>) {
    this.#directory = directory;
    this.#loaded = loaded;
    this.#read = read;
  }

  /** These files are in force. */
  loaded(files: readonly FileIdentity[]): void {
    this.#loaded = files;
    this.#onDisk = files;
  }

  /** One look at a time. Never rejects. */
  look(): Promise<void> {
    this.#look ??= this.#lookNow()
      .catch(() => {
        this.#onDisk = undefined;
      })
      .finally(() => {
        this.#look = undefined;
      });
    return this.#look;
  }

  async #lookNow(): Promise<void> {
    const marks = await marksOf(this.#directory);
    if (marks === this.#marks) return;
    // Set first: files that cannot be read are not read again until they change.
    this.#marks = marks;
    this.#onDisk = await this.#read();
  }

  /** `null` until the files were read. */
  get digest(): string | null {
    return this.#onDisk ? filesDigest(this.#onDisk) : null;
  }

  get filesDigest(): string | null {
    return this.#loaded.length > 0 ? filesDigest(this.#loaded) : null;
  }

  get changed(): string[] {
    return this.#onDisk ? changedFiles(this.#loaded, this.#onDisk) : [];
  }
}

async function marksOf(directory: string): Promise<string> {
  const marks: string[] = [];
  for (const folder of FOLDERS) {
    const names = await readdir(join(directory, folder)).catch(() => []);
    const files = names.map((name) => join(folder, name)).filter((file) => FILES.test(file));
    for (const file of files.sort().slice(0, MAX_FILES)) {
      const { ino, size, mtimeMs, ctimeMs } = await stat(join(directory, file)).catch(() => NONE);
      marks.push(`${file} ${ino} ${size} ${mtimeMs} ${ctimeMs}`);
    }
  }
  return marks.join('\n');
}

const NONE = { ino: 0, size: 0, mtimeMs: 0, ctimeMs: 0 };
