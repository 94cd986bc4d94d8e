import { execFile, spawn } from 'node:child_process';
import { createHash } from 'node:crypto';
import { once } from 'node:events';
import { existsSync, mkdirSync, mkdtempSync, readdirSync, readFileSync, renameSync, rmSync, statSync } from 'node:fs';
import { join, relative } from 'node:path';
import { promisify } from 'node:util';

const run = promisify(execFile);

export const CHECKOUT = join(import.meta.dirname, '../..');
const CACHE = join(CHECKOUT, '.cache');

/** For `madeOnce`: what is made anew with each change of a source. */
export const A_DAY_MS = 24 * 3_600_000;

/**
 * What is slow to make and the same for several files of tests, in `.cache/<kind>/<key>`: whoever comes first makes it, the others wait for
 * that. `key` says what it was made from; what is older than `maxAgeMs` is taken away, for nothing that runs stands on it any more. A run that
 * ends in between leaves nothing that looks whole, and its lock ends with it.
 */
export async function madeOnce(
  kind: string,
  key: string,
  make: (folder: string) => Promise<void>,
  maxAgeMs = Number.POSITIVE_INFINITY,
): Promise<string> {
  const cache = join(CACHE, kind);
  const made = join(cache, key);
  if (existsSync(made)) return made;
  mkdirSync(cache, { recursive: true });
  await locked(join(CACHE, `${kind}.lock`), async () => {
    if (existsSync(made)) return;
    for (const name of readdirSync(cache)) {
      const old = join(cache, name);
      if (Date.now() - statSync(old).mtimeMs > maxAgeMs) rmSync(old, { recursive: true, force: true });
    }
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

/** Of these a package is made, and of the files beside them. */
const SOURCES = ['config', 'docs', 'scripts', 'src', 'systemd'];

/** What a package is made from, as a short text: its sources, and the time that is written into it. */
export async function sourceKey(): Promise<string> {
  const inside = SOURCES.flatMap((folder) =>
    readdirSync(join(CHECKOUT, folder), { recursive: true, withFileTypes: true })
      .filter((entry) => entry.isFile())
      .map((entry) => join(entry.parentPath, entry.name)),
  );
  const beside = readdirSync(CHECKOUT, { withFileTypes: true })
    .filter((entry) => entry.isFile() && !/\.(deb|tgz|tsbuildinfo)$/.test(entry.name))
    .map((entry) => join(CHECKOUT, entry.name));
  // Where git knows no time, the package has that of package.json.
  const time = await run('git', ['log', '-1', '--format=%ct'], { cwd: CHECKOUT }).catch(() => ({ stdout: '' }));
  const hash = createHash('sha256').update(time.stdout);
  for (const path of [...inside, ...beside].sort()) {
    hash
      .update(`${relative(CHECKOUT, path)}\0`)
      .update(readFileSync(path))
      .update('\0');
  }
  return hash.digest('hex').slice(0, 16);
}
