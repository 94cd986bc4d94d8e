import { execFile } from 'node:child_process';
import { readFileSync, rmSync, symlinkSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { promisify } from 'node:util';
import { madeOnce } from './made-once.ts';

const run = promisify(execFile);

/** What a machine without a console, a network or disks of its own does not need. */
const MASKED = [
  'console-getty.service',
  'getty.target',
  'systemd-udevd.service',
  'systemd-timesyncd.service',
  'apt-daily.timer',
  'apt-daily-upgrade.timer',
  'dpkg-db-backup.timer',
  'e2scrub_all.timer',
  'fstrim.timer',
];

/**
 * A minimal Debian with systemd, made by debootstrap from the mirror that apt of this machine uses, and kept in `.cache/`.
 * The suite is this machine's own; `TAGFERRY_SYSTEM_SUITE` names another (bullseye has systemd 247, trixie 257).
 */
export function debianTree(): Promise<string> {
  const suite = systemSuite();
  return madeOnce('system', suite, async (made) => {
    const include = '--include=systemd,systemd-sysv,dbus';
    await run('debootstrap', ['--variant=minbase', include, suite, made, await mirror()], {
      env: { ...process.env, PATH: `${process.env.PATH}:/usr/sbin:/sbin`, ...(await aptProxy()) },
      maxBuffer: 64_000_000,
    });
    rmSync(join(made, 'var/cache/apt/archives'), { recursive: true, force: true });
    writeFileSync(join(made, 'etc/hostname'), 'gateway\n');
    rmSync(join(made, 'etc/resolv.conf'), { force: true });
    for (const unit of MASKED) symlinkSync('/dev/null', join(made, 'etc/systemd/system', unit));
  });
}

/** The Debian that system tests boot. */
export function systemSuite(): string {
  return process.env.TAGFERRY_SYSTEM_SUITE ?? suiteOfThisMachine();
}

/** The Debian of this machine. */
export function suiteOfThisMachine(): string {
  const name = /^VERSION_CODENAME=(\S+)$/m.exec(readFileSync('/etc/os-release', 'utf8'))?.[1];
  if (name === undefined) throw new Error('/etc/os-release names no Debian suite: set TAGFERRY_SYSTEM_SUITE');
  return name;
}

/** Where apt gets the suite of this machine from. */
export async function mirror(): Promise<string> {
  const format = '$(CODENAME) $(COMPONENT) $(REPO_URI)';
  const { stdout } = await run('apt-get', ['indextargets', '--format', format, 'Created-By: Packages']);
  const own = suiteOfThisMachine();
  const line = stdout.split('\n').find((target) => target.startsWith(`${own} main `));
  if (line === undefined) throw new Error(`apt knows no source for ${own} main: run apt-get update`);
  return line.split(' ')[2]!;
}

/** The proxy by which apt goes, as debootstrap takes it. */
export async function aptProxy(): Promise<Record<string, string>> {
  const { stdout } = await run('apt-config', ['shell', 'proxy', 'Acquire::http::Proxy']);
  const proxy = /^proxy='(.+)'$/m.exec(stdout)?.[1];
  return proxy === undefined ? {} : { http_proxy: proxy };
}
