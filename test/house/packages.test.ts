import { readFileSync } from 'node:fs';
import { join } from 'node:path';
import { describe, expect, it } from 'vitest';

interface Locked {
  version: string;
  license?: string;
  integrity?: string;
  link?: boolean;
  dev?: boolean;
  hasInstallScript?: boolean;
}

const ROOT = join(import.meta.dirname, '../..');

/** The packages that a lock names, by their names. */
function lockedIn(file: string): [name: string, Locked][] {
  const { packages } = JSON.parse(readFileSync(join(ROOT, file), 'utf8')) as { packages: Record<string, Locked> };
  return Object.entries(packages)
    .filter(([path]) => path !== '')
    .map(([path, locked]) => [path.slice(path.lastIndexOf('node_modules/') + 13), locked]);
}

/** May go out with the agent: they ask for their text to be passed on, and for nothing more. */
const SHIPPED = new Set([
  '(Apache-2.0 AND BSD-3-Clause)',
  '0BSD',
  'Apache-2.0',
  'BSD-2-Clause',
  'BSD-3-Clause',
  'BlueOak-1.0.0',
  'ISC',
  'MIT',
  'MIT OR Apache-2.0',
  'PSF-2.0',
  'Unlicense',
]);
/** May work beside it, and go out with nothing: changes of theirs would have to be shown. */
const AT_WORK = new Set([...SHIPPED, '(MIT AND Zlib)', 'CC-BY-4.0', 'CC0-1.0', 'EPL-2.0', 'MPL-2.0', 'Python-2.0']);
/** Where package.json says it in a form of other times: read by a person. */
const SAID_ELSEWHERE = new Map([
  ['dequeue', 'BSD-2-Clause'],
  ['precond', 'MIT'],
]);
/** They have such a script, which is never run: the one ships its binaries, the other asks for money. */
const WITH_SCRIPTS = ['@serialport/bindings-cpp', 'protobufjs'];

describe('package-lock.json', () => {
  const locked = lockedIn('package-lock.json');

  it('names no package whose licence does not allow what is done with it', () => {
    expect(locked.length).toBeGreaterThan(50);
    const wrong = locked
      .map(([name, { license, dev }]) => ({ name, license: license ?? SAID_ELSEWHERE.get(name) ?? 'none', dev }))
      .filter(({ license, dev }) => !(dev ? AT_WORK : SHIPPED).has(license));
    expect(wrong).toEqual([]);
  });

  it('has a checksum for each package, and no place outside of a registry', () => {
    const wrong = locked.filter(
      ([, { integrity, link, version }]) => link || !integrity?.startsWith('sha512-') || !version,
    );
    expect(wrong).toEqual([]);
  });

  it('names no package that would run a script of its own at an installation', () => {
    const found = locked.filter(([, { hasInstallScript }]) => hasInstallScript).map(([name]) => name);
    expect(found.filter((name) => !WITH_SCRIPTS.includes(name))).toEqual([]);
    expect(readFileSync(join(ROOT, '.npmrc'), 'utf8')).toMatch(/^ignore-scripts=true$/m);
  });
});

it('the runtime is one and the same on every machine', () => {
  const runtimes = lockedIn('package-lock.json').filter(([name]) => /^node-linux-(x64|arm64)$/.test(name));
  expect(runtimes.length).toBe(2);
  expect(new Set(runtimes.map(([, { version }]) => version)).size).toBe(1);
});
