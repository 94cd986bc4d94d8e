import { execFile } from 'node:child_process';
import { createHash } from 'node:crypto';
import {
  existsSync,
  mkdirSync,
  mkdtempSync,
  readdirSync,
  readFileSync,
  rmSync,
  symlinkSync,
  writeFileSync,
} from 'node:fs';
import { tmpdir } from 'node:os';
import { basename, join } from 'node:path';
import { promisify } from 'node:util';
import { CHECKOUT } from '../../host/made-once.ts';

const run = promisify(execFile);
const env = { ...process.env, PATH: `${process.env.PATH}:/usr/sbin:/sbin`, DEBIAN_FRONTEND: 'noninteractive' };
const ROOT_MB = 1_200;
const STATE_MB = 256;
/** Kernel modules in load order: disks, network, file systems, and the optional one. */
const MODULES = [
  ...['virtio_ring', 'virtio', 'virtio_pci_legacy_dev', 'virtio_pci_modern_dev', 'virtio_pci'],
  ...['failover', 'net_failover', 'virtio_net', 'virtio_blk'],
  ...['crc16', 'crc32c_generic', 'crc32_generic', 'libcrc32c', 'mbcache', 'jbd2', 'ext4'],
];
const F2FS_MODULES = ['xxhash', 'zstd_compress', 'lz4_compress', 'lz4hc_compress', 'f2fs'];

export interface Kernel {
  kernel: string;
  initrd: string;
}

export interface Image {
  root: string;
  /** An empty f2fs for the state folder. */
  state: string;
}

/** Debian's kernel and a custom initramfs, without installing either on this machine. Cached in `.cache/`. */
export async function debianKernel(): Promise<Kernel> {
  // Named after its inputs.
  const cache = join(
    CHECKOUT,
    `.cache/kernel-${createHash('sha256').update(`vmlinux ${INIT}`).digest('hex').slice(0, 8)}`,
  );
  const found = { kernel: join(cache, 'vmlinux'), initrd: join(cache, 'initrd') };
  if (existsSync(found.initrd) && existsSync(found.kernel)) return found;
  const work = mkdtempSync(join(tmpdir(), 'tagferry-kernel-'));
  try {
    const { stdout } = await run('apt-cache', ['depends', 'linux-image-amd64'], { env });
    const image = /Depends: (linux-image-\S+)/.exec(stdout)?.[1];
    if (image === undefined) throw new Error('apt knows no linux-image-amd64: run apt-get update');
    await run('apt-get', ['download', image, 'busybox-static'], { cwd: work, env });
    for (const deb of readdirSync(work)) await run('dpkg-deb', ['-x', deb, 'all'], { cwd: work, env });
    await makeInitrd(join(work, 'all'), join(work, 'initrd'));
    mkdirSync(cache, { recursive: true });
    const boot = join(work, 'all/boot');
    await unpackKernel(join(boot, readdirSync(boot).find((name) => name.startsWith('vmlinuz'))!), found.kernel);
    await run('cp', [join(work, 'initrd'), found.initrd]);
  } finally {
    rmSync(work, { recursive: true, force: true });
  }
  return found;
}

/** Unpacks the kernel, which would take seconds at each boot of an emulated machine. */
async function unpackKernel(packed: string, to: string): Promise<void> {
  const at = readFileSync(packed).indexOf(Buffer.from([0xfd, 0x37, 0x7a, 0x58, 0x5a, 0x00]));
  if (at === -1) throw new Error(`${packed} is not packed by xz`);
  await run('sh', ['-c', `tail -c +${at + 1} "$0" | xz -dc --single-stream >"$1"`, packed, to]);
}

/**
 * Mounts the disks in the command line. Then either copies all files of one to another disk, or configures the network
 * and starts systemd.
 */
const INIT = `#!/bin/busybox sh
/bin/busybox mkdir -p /proc /sys /dev /root
/bin/busybox mount -t proc proc /proc
/bin/busybox mount -t sysfs sys /sys
/bin/busybox mount -t devtmpfs dev /dev
for word in $(/bin/busybox cat /proc/cmdline); do case $word in rootopts=*|statefs=*|stateopts=*|collect=*) export "$word";; esac; done
modules="${MODULES.join(' ')}"
[ -z "$statefs$collect" ] || modules="$modules ${F2FS_MODULES.join(' ')}"
for module in $modules; do [ ! -e /modules/$module.ko ] || /bin/busybox insmod /modules/$module.ko; done
while [ ! -e /dev/vda ]; do /bin/busybox usleep 20000; done
if [ -n "$collect" ]; then
  /bin/busybox mount -t "$collect" -o "\${stateopts:-rw}" /dev/vda /root && /bin/busybox tar -c -C /root . >/dev/vdb && /bin/busybox sync
  exec /bin/busybox reboot -f
fi
/bin/busybox mount -t ext4 -o "\${rootopts:-rw}" /dev/vda /root || exec /bin/busybox sh
if [ -n "$statefs" ]; then
  /bin/busybox mount -t "$statefs" -o "\${stateopts:-rw}" /dev/vdb /root/var/lib/tagferry || exec /bin/busybox sh
fi
/bin/busybox ip link set lo up
/bin/busybox ip link set eth0 up
/bin/busybox ip addr add 10.0.2.15/24 dev eth0
/bin/busybox ip route add default via 10.0.2.2
/bin/busybox mount --move /proc /root/proc
/bin/busybox mount --move /sys /root/sys
/bin/busybox mount --move /dev /root/dev
exec /bin/busybox switch_root /root /lib/systemd/systemd --show-status=no
`;

async function makeInitrd(from: string, to: string): Promise<void> {
  const tree = mkdtempSync(join(tmpdir(), 'tagferry-initrd-'));
  try {
    for (const folder of ['bin', 'modules']) mkdirSync(join(tree, folder));
    await run('cp', [join(from, 'bin/busybox'), join(tree, 'bin/busybox')]);
    const { stdout } = await run('find', [join(from, 'lib/modules'), '-name', '*.ko']);
    for (const module of stdout.trim().split('\n')) {
      if ([...MODULES, ...F2FS_MODULES].includes(basename(module, '.ko')))
        await run('cp', [module, join(tree, 'modules')]);
    }
    writeFileSync(join(tree, 'init'), INIT, { mode: 0o755 });
    await run('sh', ['-c', `find . | /usr/bin/env cpio -o -H newc --quiet >"$0" 2>/dev/null || ${BUSYBOX_CPIO}`, to], {
      cwd: tree,
    });
  } finally {
    rmSync(tree, { recursive: true, force: true });
  }
}
/** Uses busybox if cpio is not installed. */
const BUSYBOX_CPIO = 'find . | ./bin/busybox cpio -o -H newc >"$0" 2>/dev/null';

/** Units that a machine without a console and users does not need. Masking them halves the boot time. */
const MASKED = [
  ...['systemd-logind.service', 'dbus.service', 'dbus.socket', 'systemd-user-sessions.service', 'e2scrub_reap.service'],
  ...['systemd-random-seed.service', 'systemd-update-utmp.service', 'systemd-update-utmp-runlevel.service'],
  ...['systemd-journal-flush.service', 'systemd-ask-password-wall.path', 'systemd-ask-password-console.path'],
  ...['kmod-static-nodes.service', 'systemd-modules-load.service', 'systemd-tmpfiles-clean.timer', 'remote-fs.target'],
  ...[
    'systemd-remount-fs.service',
    'systemd-tmpfiles-setup-dev.service',
    'systemd-sysusers.service',
    'modprobe@.service',
  ],
  ...['dev-hugepages.mount', 'dev-mqueue.mount', 'sys-kernel-debug.mount', 'sys-kernel-tracing.mount'],
];
const SHELL_SOCKET = '[Socket]\nListenStream=8499\nAccept=yes\n[Install]\nWantedBy=sockets.target\n';
const SHELL = '[Service]\nExecStart=-/bin/sh\nStandardInput=socket\nStandardOutput=socket\nStandardError=journal\n';

/**
 * A disk with Debian and the packages `debs`, installed with `dpkg -i`, and a shell on a port. `write` adds the
 * operator's files. The tree below is unchanged.
 */
export async function makeImage(
  folder: string,
  lower: string,
  debs: readonly string[],
  write: (root: string) => void,
): Promise<Image> {
  const [upper, work, root] = ['upper', 'work', 'root'].map((name) => join(folder, name)) as [string, string, string];
  for (const each of [upper, work, root]) mkdirSync(each, { recursive: true });
  const image = { root: join(folder, 'root.img'), state: join(folder, 'state.img') };
  // The upper folder of an overlay cannot be on an overlay, so it is on a tmpfs.
  await run('mount', ['-t', 'tmpfs', 'upper', upper]);
  try {
    for (const name of ['u', 'w']) mkdirSync(join(upper, name));
    const options = `lowerdir=${lower},upperdir=${join(upper, 'u')},workdir=${join(upper, 'w')}`;
    await run('mount', ['-t', 'overlay', '-o', options, 'overlay', root]);
    try {
      for (const deb of debs) await run('dpkg', ['--root', root, '--force-unsafe-io', '-i', deb], { env });
      // Only if another file system is mounted there. Otherwise systemd creates the folder.
      mkdirSync(join(root, 'var/lib/tagferry'), { recursive: true });
      addShell(root);
      write(root);
      await run('truncate', ['-s', `${ROOT_MB}M`, image.root]);
      await run('mkfs.ext4', ['-q', '-m', '0', '-d', root, image.root], { env });
    } finally {
      await run('umount', ['-l', root]);
    }
  } finally {
    await run('umount', ['-l', upper]);
  }
  await run('truncate', ['-s', `${STATE_MB}M`, image.state]);
  await run('mkfs.f2fs', ['-q', image.state], { env });
  for (const each of [upper, work, root]) rmSync(each, { recursive: true, force: true });
  return image;
}

function addShell(root: string): void {
  const system = join(root, 'etc/systemd/system');
  for (const unit of MASKED) {
    rmSync(join(system, unit), { force: true });
    symlinkSync('/dev/null', join(system, unit));
  }
  writeFileSync(join(system, 'test-shell.socket'), SHELL_SOCKET);
  writeFileSync(join(system, 'test-shell@.service'), SHELL);
  enable(root, 'sockets.target', 'test-shell.socket', '/etc/systemd/system');
}

/** Enables a unit as `systemctl enable` does, which does not run in a foreign tree. */
export function enable(root: string, target: string, unit: string, folder = '/lib/systemd/system'): void {
  const wants = join(root, 'etc/systemd/system', `${target}.wants`);
  mkdirSync(wants, { recursive: true });
  rmSync(join(wants, unit), { force: true });
  symlinkSync(join(folder, unit), join(wants, unit));
}
