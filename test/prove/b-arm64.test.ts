// Long: 4 min
/**
 * The arm64 package, installed by apt from a release repository on a Debian with systemd, and the main job through it.
 * The runtime, the SQLite driver and the store thread are arm64 programs, run by qemu. Shell and systemd are native.
 */
import { execFile } from 'node:child_process';
import { copyFileSync, mkdirSync, mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { basename, join } from 'node:path';
import { promisify } from 'node:util';
import { afterAll, afterEach, beforeAll, describe, expect, it } from 'vitest';
import { aptProxy, mirror, systemSuite } from '../host/debian-tree.ts';
import { Gateway, packageOf } from '../host/gateway.ts';
import { until } from '../host/machine.ts';
import { CHECKOUT } from '../host/made-once.ts';

const run = promisify(execFile);
const PATIENCE_MS = 900_000;
/** A startup under qemu takes twelve seconds of CPU time, and minutes on a busy machine. */
const QEMU_MS = 240_000;
const UNIT = 'tagferry.service';
const QEMU = '/usr/bin/qemu-aarch64-static';

let folder: string;
let gateway: Gateway;

beforeAll(async () => {
  folder = mkdtempSync(join(tmpdir(), 'tagferry-arm64-'));
  const platform = await packageOf({ arch: 'amd64', version: '0.0.1' });
  const older = await packageOf({ arch: 'arm64', version: '0.0.2' });
  const newer = await packageOf({ arch: 'arm64', version: '0.0.3' });
  gateway = await Gateway.boot();
  const { machine } = gateway;
  // The platform runs natively.
  await gateway.install(platform);
  await gateway.startSandbox();
  await machine.sh('dpkg --purge tagferry');
  // The C library of arm64 next to that of amd64, as Debian multiarch installs it.
  await machine.sh('dpkg --add-architecture arm64');
  for (const file of await librariesOfArm64()) machine.put(file, `/root/arm64/${basename(file)}`);
  await machine.sh('dpkg -i --force-depends /root/arm64/*.deb', { timeoutMs: PATIENCE_MS });
  // Replaces the runtime with a wrapper that runs it with qemu, as the kernel does if qemu is registered.
  machine.put(QEMU, QEMU);
  machine.write('/usr/local/lib/arm64-node', `#!/bin/sh\nexec ${QEMU} /usr/lib/tagferry/bin/node.arm64 "$@"\n`, 0o755);
  await machine.sh(`chmod 755 ${QEMU}
    mkdir -p /usr/lib/tagferry/bin
    dpkg-divert --quiet --local --no-rename --divert /usr/lib/tagferry/bin/node.arm64 --add /usr/lib/tagferry/bin/node
    ln -s /usr/local/lib/arm64-node /usr/lib/tagferry/bin/node`);
  await publish([older]);
  await machine.sh(
    'mkdir -p /etc/apt/keyrings; cp /srv/apt/tagferry-archive-keyring.gpg /etc/apt/keyrings/tagferry.gpg',
  );
  machine.write('/etc/apt/sources.list', 'deb [signed-by=/etc/apt/keyrings/tagferry.gpg] file:/srv/apt stable main\n');
  await publish([older, newer], '/srv/apt.newer');
}, 900_000);

afterAll(async () => {
  await gateway?.stop();
  rmSync(folder, { recursive: true, force: true });
});

afterEach(async ({ task }) => {
  if (task.result?.state !== 'fail') return;
  process.stderr.write(
    `${await gateway.machine.sh('journalctl --no-pager -n 80 2>&1; dpkg -l "tagferry*" 2>&1 || true')}\n`,
  );
});

/** With a separate apt configuration, so that this machine's own configuration remains unchanged. */
async function librariesOfArm64(): Promise<string[]> {
  const root = join(folder, 'apt');
  for (const part of ['state/lists/partial', 'cache/archives/partial', 'etc/apt.conf.d', 'etc/preferences.d', 'got'])
    mkdirSync(join(root, part), { recursive: true });
  const keyring = '/usr/share/keyrings/debian-archive-keyring.gpg';
  writeFileSync(join(root, 'etc/sources.list'), `deb [signed-by=${keyring}] ${await mirror()} ${systemSuite()} main\n`);
  writeFileSync(join(root, 'status'), '');
  const own = Object.entries({
    'Dir::State': join(root, 'state'),
    'Dir::State::status': join(root, 'status'),
    'Dir::Cache': join(root, 'cache'),
    'Dir::Etc': join(root, 'etc'),
    'APT::Architecture': 'arm64',
    'APT::Architectures': 'arm64',
    'APT::Sandbox::User': 'root',
    'Acquire::Languages': 'none',
  }).flatMap(([name, value]) => ['-o', `${name}=${value}`]);
  const env = { ...process.env, ...(await aptProxy()) };
  const apt = (...args: string[]) =>
    run('apt-get', [...own, ...args], { cwd: join(root, 'got'), env, maxBuffer: 64_000_000 });
  await apt('update', '-qq');
  const gcc = (await run('apt-cache', [...own, 'depends', 'libstdc++6'], { env })).stdout.match(/gcc-\d+-base/)![0];
  await apt('download', 'libc6', 'libgcc-s1', 'libstdc++6', gcc);
  const { stdout } = await run('find', [join(root, 'got'), '-name', '*.deb']);
  return stdout.trim().split('\n');
}

/** Copies a repository with these packages, signed as by scripts/release, to the machine. */
async function publish(debs: readonly string[], place = '/srv/apt'): Promise<void> {
  const repository = mkdtempSync(join(folder, 'repository-'));
  const env = { ...process.env, GNUPGHOME: join(folder, 'gnupg') };
  mkdirSync(join(repository, 'pool/main/t/tagferry'), { recursive: true });
  for (const deb of debs) copyFileSync(deb, join(repository, 'pool/main/t/tagferry', basename(deb)));
  await run(join(CHECKOUT, 'scripts/release.d/apt-index'), [repository, '1793534400']);
  if (debs.length === 1) {
    mkdirSync(env.GNUPGHOME, { mode: 0o700 });
    await run(
      'gpg',
      ['--batch', '--passphrase', '', '--quick-generate-key', 'apt@tagferry.invalid', 'ed25519', 'sign', 'never'],
      { env },
    );
  }
  const dists = join(repository, 'dists/stable');
  await run('gpg', ['--batch', '--export', '--output', join(repository, 'tagferry-archive-keyring.gpg')], { env });
  await run('gpg', ['--batch', '--clearsign', '--output', join(dists, 'InRelease'), join(dists, 'Release')], { env });
  const { stdout } = await run('find', [repository, '-type', 'f', '-printf', '%P\n']);
  for (const name of stdout.trim().split('\n')) gateway.machine.put(join(repository, name), join(place, name));
}

const arm64Process = async () => gateway.machine.sh(`tr '\\0' ' ' </proc/${await gateway.mainPid()}/cmdline`);

describe('arm64 package', { timeout: PATIENCE_MS }, () => {
  it('is installed by apt from the signed repository, and starts', async () => {
    const said = await gateway.machine.sh(
      'apt-get update 2>&1; apt-get install --yes --no-install-recommends tagferry:arm64 2>&1',
      { timeoutMs: PATIENCE_MS },
    );
    expect(said).not.toMatch(/^[WE]:/m);
    expect(await gateway.machine.sh(`dpkg-query -W -f '\${Architecture} \${Version} \${Status}' tagferry`)).toBe(
      'arm64 0.0.2 install ok installed',
    );
    expect(await gateway.machine.sh('od -An -tu2 -j18 -N2 /usr/lib/tagferry/bin/node.arm64')).toBe('183');
    expect(await gateway.machine.sh('tagferry --version')).toBe('0.0.2');
    expect(await gateway.machine.sh(`/usr/lib/tagferry/bin/node -p 'process.arch'`)).toBe('arm64');
  });

  it('delivers every value despite an outage and a kill -9', async () => {
    await gateway.configure();
    await gateway.machine.sh(`systemctl enable --now ${UNIT}`, { timeoutMs: PATIENCE_MS });
    expect(await arm64Process()).toContain('qemu-aarch64-static');
    await gateway.startPusher();
    await gateway.pushed(100, QEMU_MS);
    await gateway.sandbox('POST', 'offline', { mode: 'refuse' });
    await gateway.pushed(60, QEMU_MS);
    const pid = await gateway.mainPid();
    await gateway.machine.sh(`kill -KILL ${pid}`);
    await gateway.restarted(pid, QEMU_MS);
    await gateway.pushed(60, QEMU_MS);
    await gateway.sandbox('POST', 'online');
    await gateway.stopPusher();
    expect(gateway.acknowledged().length).toBeGreaterThanOrEqual(220);
    expect(await gateway.missing(QEMU_MS)).toEqual([]);
  });

  it('is upgraded by apt without losing buffered values', async () => {
    await gateway.sandbox('POST', 'offline', { mode: 'refuse' });
    await gateway.startPusher();
    await gateway.pushed(40, QEMU_MS);
    await gateway.stopPusher();
    const pid = await gateway.mainPid();
    const said = await gateway.machine.sh(
      'rm -r /srv/apt; mv /srv/apt.newer /srv/apt; apt-get update 2>&1; apt-get --yes upgrade 2>&1',
      {
        timeoutMs: PATIENCE_MS,
      },
    );
    expect(said).toContain('tagferry:arm64 (0.0.3) over (0.0.2)');
    await gateway.restarted(pid, QEMU_MS);
    await gateway.sandbox('POST', 'online');
    expect(await gateway.missing(QEMU_MS)).toEqual([]);
    expect(await gateway.machine.sh('tagferry --version')).toBe('0.0.3');
    await until('the agent is stopped cleanly', async () => {
      await gateway.machine.sh(`systemctl stop ${UNIT}`);
      return (await gateway.machine.property(UNIT, 'ActiveState')) === 'inactive';
    });
  });
});
