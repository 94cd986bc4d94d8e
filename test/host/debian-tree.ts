import { execFile } from 'node:child_process';
import { copyFileSync, readFileSync, rmSync, symlinkSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { promisify } from 'node:util';
import { madeOnce } from './made-once.ts';

const run = promisify(execFile);

/** Units that a machine without console, network and disks does not need. */
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
 * Builds a minimal Debian tree with systemd with mmdebstrap, from the mirror of this machine, and caches it in `.cache/`.
 * `TAGFERRY_SYSTEM_SUITE` selects a suite other than that of this machine (bullseye has systemd 247, trixie 257).
 */
export function debianTree(): Promise<string> {
  const suite = systemSuite();
  return madeOnce('system', suite, async (made) => {
    const include = '--include=systemd,systemd-sysv,dbus';
    // Twice as fast as debootstrap, which unpacks and configures the packages with a shell script.
    const how = ['--mode=root', '--variant=minbase', '--dpkgopt=force-unsafe-io', include];
    await run('mmdebstrap', [...how, suite, made, await mirror()], {
      env: { ...process.env, PATH: `${process.env.PATH}:/usr/sbin:/sbin`, ...(await aptProxy()) },
      maxBuffer: 64_000_000,
    });
    // Keeps the option.
    rmSync(join(made, 'etc/dpkg/dpkg.cfg.d/99mmdebstrap'), { force: true });
    writeFileSync(join(made, 'etc/hostname'), 'gateway\n');
    rmSync(join(made, 'etc/resolv.conf'), { force: true });
    for (const unit of MASKED) symlinkSync('/dev/null', join(made, 'etc/systemd/system', unit));
  });
}

/** Returns the tree with additional Debian packages, named `kind`. The packages come from the tree's sources. */
export async function debianTreeWith(kind: string, packages: readonly string[]): Promise<string> {
  const tree = await debianTree();
  return madeOnce(`system-${kind}`, systemSuite(), async (made) => {
    const whole = join(made, 'tree');
    await run('cp', ['-a', tree, whole]);
    copyFileSync('/etc/resolv.conf', join(whole, 'etc/resolv.conf'));
    const apt = `chroot "$0" apt-get`;
    const script = `
      mount -t proc proc "$0/proc"
      printf '#!/bin/sh\nexit 101\n' >"$0/usr/sbin/policy-rc.d"; chmod 755 "$0/usr/sbin/policy-rc.d"
      ${apt} update -qq
      ${apt} install --yes -qq --no-install-recommends -o Dpkg::Options::=--force-unsafe-io ${packages.join(' ')}
      ${apt} clean
      rm "$0/usr/sbin/policy-rc.d" "$0/etc/resolv.conf"`;
    const alone = ['--mount', '--pid', '--fork', '--propagation', 'private', 'sh', '-euc', script, whole];
    await run('unshare', alone, {
      env: { ...process.env, ...(await aptProxy()), DEBIAN_FRONTEND: 'noninteractive' },
      maxBuffer: 64_000_000,
    });
  }).then((made) => join(made, 'tree'));
}

/** Debian tree that system tests boot. */
export function systemSuite(): string {
  return process.env.TAGFERRY_SYSTEM_SUITE ?? suiteOfThisMachine();
}

/** Debian suite of this machine. */
export function suiteOfThisMachine(): string {
  const name = /^VERSION_CODENAME=(\S+)$/m.exec(readFileSync('/etc/os-release', 'utf8'))?.[1];
  if (name === undefined) throw new Error('/etc/os-release names no Debian suite: set TAGFERRY_SYSTEM_SUITE');
  return name;
}

/** Mirror from which this machine gets its suite. */
export async function mirror(): Promise<string> {
  const format = '$(CODENAME) $(COMPONENT) $(REPO_URI)';
  const { stdout } = await run('apt-get', ['indextargets', '--format', format, 'Created-By: Packages']);
  const own = suiteOfThisMachine();
  const line = stdout.split('\n').find((target) => target.startsWith(`${own} main `));
  if (line === undefined) throw new Error(`apt knows no source for ${own} main: run apt-get update`);
  return line.split(' ')[2]!;
}

/** Proxy of apt, in the form that mmdebstrap accepts. */
export async function aptProxy(): Promise<Record<string, string>> {
  const { stdout } = await run('apt-config', ['shell', 'proxy', 'Acquire::http::Proxy']);
  const proxy = /^proxy='(.+)'$/m.exec(stdout)?.[1];
  return proxy === undefined ? {} : { http_proxy: proxy };
}
