import { statSync } from 'node:fs';
import { join } from 'node:path';
import { RESTART } from '../config/configuration-report.ts';
import { KEY_NAMES, type KeyName, settingKey } from '../config/setting-keys.ts';

/**
 * Which credentials of the unit were changed since they were loaded: systemd hands a service its credentials once, when it starts.
 * Their files are root's, so this looks at their times alone, through a folder that lets pass and not list (0711).
 */
export class CredentialWatch {
  readonly #paths: readonly { name: string; path: string }[];
  /** Where systemd puts what it loaded. */
  readonly #loadedIn: string;
  readonly #seen: Map<string, string>;
  #loaded: ReadonlyMap<string, string>;

  /** `directory`: of the configuration. Nothing is watched where the unit hands over no credentials. */
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
    this.#loaded = this.#lookAtLoaded();
  }

  /** Names of the credentials whose files are not those of the start any more. */
  changed(): string[] {
    return [
      ...new Set(this.#paths.filter(({ path }) => markOf(path) !== this.#seen.get(path)).map(({ name }) => name)),
    ];
  }

  /** The configuration was read again, with every credential that systemd has loaded again since. */
  reloaded(): void {
    const loaded = this.#lookAtLoaded();
    for (const { name, path } of this.#paths) {
      if (loaded.get(name) !== this.#loaded.get(name)) this.#seen.set(path, markOf(path));
    }
    this.#loaded = loaded;
  }

  #lookAtLoaded(): Map<string, string> {
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

/** The command after which a changed secret is in force: a process receives credentials and its environment once. */
export function secretCommand(key: KeyName, environment: NodeJS.ProcessEnv): string {
  const folder = environment.CREDENTIALS_DIRECTORY;
  // The unit sets an empty line if the file is missing.
  const isCredential = folder !== undefined && folder !== '' && sizeOf(join(folder, key.toLowerCase())) > 1;
  return isCredential || environment[key] ? RESTART : '`tagferry reload`';
}

function sizeOf(path: string): number {
  return statSync(path, { throwIfNoEntry: false })?.size ?? 0;
}
