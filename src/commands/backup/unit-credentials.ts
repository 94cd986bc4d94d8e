/** Credentials and files that the unit's drop-ins take from elsewhere: on another machine such a unit does not start, and who restores has to know. */
import { readdirSync, readFileSync, statSync } from 'node:fs';
import { isAbsolute, join, relative, resolve } from 'node:path';

/** Where systemd looks for a credential that is named without a path. */
const STORES = ['/etc/credstore', '/run/credstore', '/usr/local/lib/credstore', '/usr/lib/credstore'];
const BY_HAND = 'bring it to the new machine by hand before the service starts';
const ANEW = 'it is encrypted to this machine: encrypt it anew on the new one (`systemd-creds encrypt`)';

interface Elsewhere {
  file: string;
  why: string;
}

/** What the drop-ins in `units` name and a backup of `directory` does not hold in a form that another machine can use. */
export function unitCredentials(units: string, directory: string): Elsewhere[] {
  const found = new Map<string, string>();
  for (const file of dropIns(units)) {
    for (const [name, value] of assignments(file)) {
      for (const one of namedBy(name, value, directory, file)) found.set(one.file, one.why);
    }
  }
  return [...found].map(([file, why]) => ({ file, why }));
}

function dropIns(units: string): string[] {
  try {
    return readdirSync(units)
      .filter((name) => name.endsWith('.conf'))
      .sort()
      .map((name) => join(units, name));
  } catch {
    return [];
  }
}

/** Lines `Name=value`; one that ends in a backslash goes on in the next. */
function assignments(file: string): [name: string, value: string][] {
  let text = '';
  try {
    text = readFileSync(file, 'utf8');
  } catch {
    // Named by what takes the drop-ins themselves.
  }
  return text
    .replaceAll(/\\\r?\n/g, ' ')
    .split('\n')
    .flatMap((line) => {
      const match = /^\s*([A-Za-z]+)\s*=\s*(.*?)\s*$/.exec(line);
      return match ? [[match[1]!, match[2]!] as [string, string]] : [];
    });
}

function namedBy(name: string, value: string, directory: string, dropIn: string): Elsewhere[] {
  // Nothing behind `=` takes back what stood before.
  if (value === '') return [];
  const [id, path] = value.split(/:(.*)/s, 2) as [string, string | undefined];
  switch (name) {
    case 'LoadCredential':
      return placesOf(path ?? id, STORES)
        .filter((place) => !isInside(directory, place))
        .map((file) => ({ file, why: `${dropIn} loads the credential ${id} from it: ${BY_HAND}` }));
    case 'LoadCredentialEncrypted':
      return placesOf(
        path ?? id,
        STORES.map((store) => `${store}.encrypted`),
      )
        .filter((place) => !isDecrypted(directory, place))
        .map((file) => ({ file, why: `${dropIn} loads the credential ${id} from it; ${ANEW}` }));
    case 'SetCredentialEncrypted':
      return [{ file: `${dropIn}, credential ${id}`, why: ANEW }];
    case 'ImportCredential':
      return [{ file: `credentials ${value}`, why: `${dropIn} imports them from systemd's stores: ${BY_HAND}` }];
    case 'EnvironmentFile': {
      const file = value.replace(/^-/, '');
      return isInside(directory, file) ? [] : [{ file, why: `${dropIn} reads it: ${BY_HAND}` }];
    }
    default:
      return [];
  }
}

/** A path as it is; a name in each store that has it, and in the first where none has. */
function placesOf(path: string, stores: readonly string[]): string[] {
  if (isAbsolute(path)) return [path];
  const places = stores.map((store) => join(store, path));
  const there = places.filter((place) => statSync(place, { throwIfNoEntry: false }) !== undefined);
  return there.length > 0 ? there : places.slice(0, 1);
}

function isInside(directory: string, path: string): boolean {
  const inside = relative(resolve(directory), path);
  return !inside.startsWith('..') && !isAbsolute(inside);
}

/** Those go decrypted into the backup; others in its folder are of use on this machine alone. */
function isDecrypted(directory: string, path: string): boolean {
  return relative(join(resolve(directory), 'credentials'), path).match(/^[^/]+\.cred$/) !== null;
}
