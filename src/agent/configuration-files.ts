/** Detects changes to the configuration files and the systemd credentials that have not been loaded. */
import { statSync } from 'node:fs';
import { readdir, stat } from 'node:fs/promises';
import { join } from 'node:path';
import { changedFiles, type FileIdentity, filesDigest } from '../config/configuration-digest.ts';
import { KEY_NAMES, settingKey } from '../config/setting-keys.ts';

const FOLDERS = ['', 'agent.env.d', 'tags.d', 'reactions.d'];
const FILES =
  /(?:^|\/)(?:agent\.env|tags\.yaml|reactions\.yaml)$|^[a-z]+\.env\.d\/.*\.env$|^(?:tags|reactions)\.d\/.*\.yaml$/;
/** Maximum number of files per folder, the same as for reading the configuration. */
const MAX_FILES = 1000;

/**
 * Compares the configuration files on disk with those in use. A check reads the modification times without blocking the
 * event loop. The files themselves are read in a thread, and only if a modification time has changed.
 */
export class ConfigurationFiles {
  readonly #directory: string;
  readonly #read: () => Promise<readonly FileIdentity[]>;
  #marks = '';
  #loaded: readonly FileIdentity[];
  #onDisk: readonly FileIdentity[] | undefined;
  #checking: Promise<void> | undefined;

  constructor(directory: string, loaded: readonly FileIdentity[], read: () => Promise<readonly FileIdentity[]>) {
    this.#directory = directory;
    this.#loaded = loaded;
    this.#read = read;
  }

  setLoaded(files: readonly FileIdentity[]): void {
    this.#loaded = files;
    this.#onDisk = files;
  }

  /** Checks the files. Concurrent calls share one check. Never rejects. */
  check(): Promise<void> {
    this.#checking ??= this.#checkNow()
      .catch(() => {
        this.#onDisk = undefined;
      })
      .finally(() => {
        this.#checking = undefined;
      });
    return this.#checking;
  }

  async #checkNow(): Promise<void> {
    const marks = await marksOf(this.#directory);
    if (marks === this.#marks) return;
    // Set first, so that unreadable files are not read again until they change.
    this.#marks = marks;
    this.#onDisk = await this.#read();
  }

  /** `null` until the files have been read. */
  get diskDigest(): string | null {
    return this.#onDisk ? filesDigest(this.#onDisk) : null;
  }

  get loadedDigest(): string | null {
    return this.#loaded.length > 0 ? filesDigest(this.#loaded) : null;
  }

  /** Names of files that were added, removed or edited since they were loaded. */
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
      const found = await stat(join(directory, file)).catch(() => undefined);
      marks.push(`${file} ${found?.ino} ${found?.size} ${found?.mtimeMs} ${found?.ctimeMs}`);
    }
  }
  return marks.join('\n');
}

/**
 * Detects credentials that changed since systemd passed them to the service at startup. Only root can read the files,
 * so only their modification times are compared. Their folder allows access but not listing (0711).
 */
export class CredentialWatch {
  readonly #paths: readonly { name: string; path: string }[];
  /** Folder of the credentials loaded by systemd. */
  readonly #loadedIn: string;
  readonly #seen: Map<string, string>;
  #loaded: ReadonlyMap<string, string>;

  /** `directory` is the configuration folder. Disabled if the unit passes no credentials. */
  constructor(directory: string | undefined, environment: NodeJS.ProcessEnv) {
    this.#loadedIn = environment.CREDENTIALS_DIRECTORY ?? '';
    const names = KEY_NAMES.filter((key) => settingKey(key).secret).map((key) => key.toLowerCase());
    this.#paths =
      this.#loadedIn === '' || directory === undefined
        ? []
        : names.flatMap((name) =>
            ['', '.cred'].map((end) => ({ name, path: join(directory, 'credentials', name + end) })),
          );
    this.#seen = new Map(this.#paths.map(({ path }) => [path, markOf(path)]));
    this.#loaded = this.#loadedMarks();
  }

  /** Names of credentials that changed since startup. */
  get changed(): string[] {
    const changed = this.#paths.filter(({ path }) => markOf(path) !== this.#seen.get(path));
    return [...new Set(changed.map(({ name }) => name))];
  }

  /** Called after a reload, which applies all credentials that systemd has reloaded. */
  reloaded(): void {
    const loaded = this.#loadedMarks();
    for (const { name, path } of this.#paths) {
      if (loaded.get(name) !== this.#loaded.get(name)) this.#seen.set(path, markOf(path));
    }
    this.#loaded = loaded;
  }

  #loadedMarks(): Map<string, string> {
    return new Map(this.#paths.map(({ name }) => [name, markOf(join(this.#loadedIn, name))]));
  }
}

function markOf(path: string): string {
  try {
    const { ino, size, mtimeMs } = statSync(path);
    return `${ino} ${size} ${mtimeMs}`;
  } catch {
    return 'none';
  }
}
