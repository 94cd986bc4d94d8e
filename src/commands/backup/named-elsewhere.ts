import { readdirSync, readFileSync, statSync } from 'node:fs';
import { hostname } from 'node:os';
import { isAbsolute, join, relative, resolve } from 'node:path';
import { readRegularFileSync } from '../../base/regular-file.ts';
import { withDropIns } from '../../config/drop-in-files.ts';
import { readEnvFiles } from '../../config/env-files.ts';
import { Problems } from '../../config/problem.ts';

/**
 * Finds files outside the configuration folder that the configuration or the unit refers to and the backup does not
 * include.
 */

/** Matches absolute paths, which start with a slash after a quote, bracket, separator or space. */
const PATHS = /(?<=^|[\s"'[{,=:])\/[^\s"',\]}#;:]+/gm;

const OF_THE_SYSTEM = /^\/(bin|sbin|lib|lib64|usr\/(bin|sbin|lib)|dev|proc|sys)\//;
const MAX_NAMED = 100;

export function namedElsewhere(directory: string): { file: string; why: string }[] {
  const values = { hostname: hostname(), environment: process.env };
  const lines = [...readEnvFiles(directory, values, new Problems()).lines.values()];
  const found = new Set(lines.flatMap(({ value }) => (isElsewhere(directory, value) ? [value] : [])));
  const files = [
    ...withDropIns(directory, 'tags.yaml', 'tags.d', new Problems()),
    ...withDropIns(directory, 'reactions.yaml', 'reactions.d', new Problems()),
  ];
  for (const { path } of files) {
    for (const line of textOf(path).split('\n')) {
      if (/^\s*[#;]/.test(line)) continue;
      for (const [named] of line.matchAll(PATHS)) if (isElsewhere(directory, named)) found.add(named);
    }
  }
  return [...found].slice(0, MAX_NAMED).map((file) => ({ file, why: 'outside the configuration folder' }));
}

function isElsewhere(directory: string, path: string): boolean {
  if (!isAbsolute(path)) return false;
  const inside = relative(resolve(directory), path);
  if (OF_THE_SYSTEM.test(path) || (!inside.startsWith('..') && !isAbsolute(inside))) return false;
  try {
    return statSync(path).isFile();
  } catch {
    return false;
  }
}

const MAX_BYTES = 64_000_000;

function textOf(path: string): string {
  try {
    return readRegularFileSync(path, MAX_BYTES).bytes.toString();
  } catch {
    return '';
  }
}

/** Folders that systemd searches for credentials specified without a path. */
const STORES = ['/etc/credstore', '/run/credstore', '/usr/local/lib/credstore', '/usr/lib/credstore'];
const BY_HAND = 'copy it to the new machine before you start the service';
const ENCRYPTED =
  'it is encrypted for this machine, so encrypt it again on the new machine with `systemd-creds encrypt`';

interface Elsewhere {
  file: string;
  why: string;
}

/**
 * Returns credentials and files referenced by the drop-ins of `units` that a backup of `directory` does not contain in
 * portable form.
 */
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

/** Parses `Name=value` lines; a trailing backslash continues a line. */
function assignments(file: string): [name: string, value: string][] {
  let text = '';
  try {
    text = readFileSync(file, 'utf8');
  } catch {
    // Unreadable files are reported when the drop-ins are backed up.
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
  // An empty value resets previous ones.
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
        .map((file) => ({ file, why: `${dropIn} loads the credential ${id} from it; ${ENCRYPTED}` }));
    case 'SetCredentialEncrypted':
      return [{ file: `${dropIn}, credential ${id}`, why: ENCRYPTED }];
    case 'ImportCredential':
      return [
        { file: `credentials ${value}`, why: `${dropIn} imports them from systemd's credential stores: ${BY_HAND}` },
      ];
    case 'EnvironmentFile': {
      const file = value.replace(/^-/, '');
      return isInside(directory, file) ? [] : [{ file, why: `${dropIn} reads it: ${BY_HAND}` }];
    }
    default:
      return [];
  }
}

/**
 * Returns an absolute path unchanged. Otherwise returns the path in each store that contains the name, or in the first
 * store if no store contains it.
 */
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

/** Returns whether the backup contains the decrypted credential. */
function isDecrypted(directory: string, path: string): boolean {
  return relative(join(resolve(directory), 'credentials'), path).match(/^[^/]+\.cred$/) !== null;
}
