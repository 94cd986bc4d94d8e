import { statSync } from 'node:fs';
import { join } from 'node:path';
import { KEY_NAMES, settingKey } from '../config/setting-keys.ts';

/**
 * Which credentials of the unit were changed since they were loaded: systemd hands a service its credentials once, when it starts.
 * Their files are root's, so this looks at their times alone, through a folder that lets pass and not list (0711).
 */
export class CredentialWatch {
  readonly #paths: readonly { name: string; path: string }[];
  #seen: ReadonlyMap<string, string>;

  /** `directory`: of the configuration. Nothing is watched where the unit hands over no credentials. */
  constructor(directory: string | undefined, environment: NodeJS.ProcessEnv) {
    const isGiven = (environment.CREDENTIALS_DIRECTORY ?? '') !== '';
    const names = KEY_NAMES.filter((key) => settingKey(key).secret).map((key) => key.toLowerCase());
    this.#paths =
      !isGiven || directory === undefined
        ? []
        : names.flatMap((name) =>
            ['', '.cred'].map((end) => ({ name, path: join(directory, 'credentials', name + end) })),
          );
    this.#seen = this.#look();
  }

  /** Names of the credentials whose files are not those of the start any more. */
  changed(): string[] {
    const now = this.#look();
    return [
      ...new Set(this.#paths.filter(({ path }) => now.get(path) !== this.#seen.get(path)).map(({ name }) => name)),
    ];
  }

  /** The credentials of now were loaded anew. */
  taken(): void {
    this.#seen = this.#look();
  }

  #look(): Map<string, string> {
    return new Map(this.#paths.map(({ path }) => [path, markOf(path)]));
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
