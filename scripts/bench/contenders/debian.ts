/** Where `scripts/bench/peers` unpacked Debian's packages. */
import { execFileSync } from 'node:child_process';
import { readdirSync } from 'node:fs';
import { join } from 'node:path';

export const debianRoot = join(import.meta.dirname, '../../../.cache/peers/root');

/** `/usr/lib/x86_64-linux-gnu` or the like. */
const machineLibraries = () =>
  readdirSync(join(debianRoot, 'usr/lib')).find((name) => name.includes('-linux-gnu')) ?? 'x86_64-linux-gnu';

export const rsyslogModules = () => join(debianRoot, 'usr/lib', machineLibraries(), 'rsyslog');

export function syslogNgModules(): string {
  const lib = join(debianRoot, 'usr/lib/syslog-ng');
  return join(lib, readdirSync(lib).find((name) => /^\d/.test(name))!);
}

/** The environment in which an unpacked program finds its libraries. */
export function debianLibraries(): NodeJS.ProcessEnv {
  const places = ['usr/lib/syslog-ng', join('usr/lib', machineLibraries()), join('lib', machineLibraries())];
  return { LD_LIBRARY_PATH: places.map((place) => join(debianRoot, place)).join(':') };
}

/** The version that a program says it has. */
export function versionOf(program: 'rsyslogd' | 'syslog-ng'): string {
  const args = program === 'rsyslogd' ? ['-v'] : ['--version'];
  const said = execFileSync(join(debianRoot, 'usr/sbin', program), args, {
    encoding: 'utf8',
    env: { ...process.env, ...debianLibraries() },
  });
  return /\d+\.\d+\.\d+/.exec(said)?.[0] ?? 'unknown';
}
