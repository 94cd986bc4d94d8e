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

/** Returns the packages in a lock file, by name. */
function lockedIn(file: string): [name: string, Locked][] {
  const { packages } = JSON.parse(readFileSync(join(ROOT, file), 'utf8')) as { packages: Record<string, Locked> };
  return Object.entries(packages)
    .filter(([path]) => path !== '')
    .map(([path, locked]) => [path.slice(path.lastIndexOf('node_modules/') + 13), locked]);
}

/** Licences of packages that may be shipped with the agent: they require only that their text is included. */
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
/** Licences of development dependencies, which are not shipped: some require changes to be published. */
const AT_WORK = new Set([...SHIPPED, '(MIT AND Zlib)', 'CC-BY-4.0', 'CC0-1.0', 'EPL-2.0', 'MPL-2.0', 'Python-2.0']);
/** Licences that package.json states in an obsolete form, determined manually. */
const SAID_ELSEWHERE = new Map([
  ['dequeue', 'BSD-2-Clause'],
  ['influx-line-protocol-parser', 'MIT'],
  ['precond', 'MIT'],
  ['systemd-notify', 'MIT'],
]);
/**
 * Packages with an install script that is never run: one ships its binaries, the other prints a request for donations.
 */
const WITH_SCRIPTS = ['@serialport/bindings-cpp', 'protobufjs'];

describe('package-lock.json', () => {
  const locked = lockedIn('package-lock.json');

  it('contains only packages with a permitted licence', () => {
    expect(locked.length).toBeGreaterThan(50);
    const wrong = locked
      .map(([name, { license, dev }]) => ({ name, license: license ?? SAID_ELSEWHERE.get(name) ?? 'none', dev }))
      .filter(({ license, dev }) => !(dev ? AT_WORK : SHIPPED).has(license));
    expect(wrong).toEqual([]);
  });

  it('has a checksum for each package, and only registry addresses', () => {
    const wrong = locked.filter(
      ([, { integrity, link, version }]) => link || !integrity?.startsWith('sha512-') || !version,
    );
    expect(wrong).toEqual([]);
  });

  it('contains no package with an install script', () => {
    const found = locked.filter(([, { hasInstallScript }]) => hasInstallScript).map(([name]) => name);
    expect(found.filter((name) => !WITH_SCRIPTS.includes(name))).toEqual([]);
    expect(readFileSync(join(ROOT, '.npmrc'), 'utf8')).toMatch(/^ignore-scripts=true$/m);
  });
});

it('package-lock.json pins the same runtime version for all architectures', () => {
  const runtimes = lockedIn('package-lock.json').filter(([name]) => /^node-linux-(x64|arm64)$/.test(name));
  expect(runtimes.length).toBe(2);
  expect(new Set(runtimes.map(([, { version }]) => version)).size).toBe(1);
});
