import { execFile, spawn } from 'node:child_process';
import { createHash } from 'node:crypto';
import { once } from 'node:events';
import { existsSync, mkdirSync, mkdtempSync, readdirSync, readFileSync, renameSync, rmSync } from 'node:fs';
import { join } from 'node:path';
import { promisify } from 'node:util';

const run = promisify(execFile);

export const CHECKOUT = join(import.meta.dirname, '../..');
const CACHE = join(CHECKOUT, '.cache');

/**
 * What is slow to make and the same for several files of tests, in `.cache/<kind>/<key>`: whoever comes first makes it, the others wait for
 * that. `key` says what it was made from; what `isOld` says of another key is taken away. A run that ends in between leaves nothing that looks
 * whole, and its lock ends with it.
 */
export async function madeOnce(
  kind: string,
  key: string,
  make: (folder: string) => Promise<void>,
  isOld: (key: string) => boolean = () => false,
): Promise<string> {
  const cache = join(CACHE, kind);
  const made = join(cache, key);
  mkdirSync(cache, { recursive: true });
  await locked(join(CACHE, `${kind}.lock`), async () => {
    if (existsSync(made)) return;
    for (const old of readdirSync(cache).filter(isOld)) rmSync(join(cache, old), { recursive: true, force: true });
    const making = mkdtempSync(join(cache, 'making-'));
    try {
      await make(making);
      renameSync(making, made);
    } finally {
      rmSync(making, { recursive: true, force: true });
    }
  });
  return made;
}

/** Alone among all processes of this machine. The lock is held by a process that ends with this one, however it ends. */
async function locked(file: string, work: () => Promise<void>): Promise<void> {
  const holder = spawn('flock', [file, 'sh', '-c', 'echo locked; exec cat'], { stdio: ['pipe', 'pipe', 'inherit'] });
  const ended = once(holder, 'exit');
  try {
    await Promise.race([
      once(holder.stdout, 'data'),
      ended.then(() => {
        throw new Error(`${file} could not be locked`);
      }),
    ]);
    await work();
  } finally {
    holder.stdin.end();
    await ended;
  }
}

/** What a package is made from: every file of this checkout but the tests, and the time that is written into it. */
export async function sourceKey(): Promise<string> {
  const git = (...args: string[]) => run('git', args, { cwd: CHECKOUT, maxBuffer: 64_000_000 });
  const { stdout } = await git('ls-files', '-z', '--cached', '--others', '--exclude-standard', '--', '.', ':!test');
  const { stdout: time } = await git('log', '-1', '--format=%ct');
  const hash = createHash('sha256').update(time);
  for (const name of stdout.split('\0').filter(Boolean).sort()) {
    const path = join(CHECKOUT, name);
    if (existsSync(path)) hash.update(`${name}\0`).update(readFileSync(path)).update('\0');
  }
  return hash.digest('hex').slice(0, 16);
}
