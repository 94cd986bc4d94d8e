import { execFile, spawn } from 'node:child_process';
import { createHash } from 'node:crypto';
import { once } from 'node:events';
import { existsSync, mkdirSync, mkdtempSync, readdirSync, readFileSync, renameSync, rmSync, statSync } from 'node:fs';
import { join, relative } from 'node:path';
import { promisify } from 'node:util';

const run = promisify(execFile);

export const CHECKOUT = join(import.meta.dirname, '../..');
const CACHE = join(CHECKOUT, '.cache');

/** Environment of agents: Node caches compiled sources by content for all processes, which halves startup time. */
export const COMPILED_CODE = { NODE_COMPILE_CACHE: join(CHECKOUT, 'node_modules/.cache/compiled') };

/** For `madeOnce`: artifacts that are rebuilt after each source change. */
export const A_DAY_MS = 24 * 3_600_000;

/**
 * Slow artifacts shared by several test files, in `.cache/<kind>/<key>`. The first process builds an artifact, and the
 * others wait. `key` identifies its inputs; artifacts older than `maxAgeMs` are deleted, because no running test uses
 * them any more. An interrupted build leaves no artifact that looks complete, and releases its lock.
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

/** Lock across all processes of this machine. The process that owns the lock ends with this one, however it ends. */
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

/** Inputs of a package, in addition to the files next to them. */
const SOURCES = ['config', 'docs', 'scripts', 'src', 'systemd'];

/** Digest of the package inputs: its sources and its build time. */
export async function sourceKey(): Promise<string> {
  const inside = SOURCES.flatMap((folder) =>
    readdirSync(join(CHECKOUT, folder), { recursive: true, withFileTypes: true })
      .filter((entry) => entry.isFile())
      .map((entry) => join(entry.parentPath, entry.name)),
  );
  const beside = readdirSync(CHECKOUT, { withFileTypes: true })
    .filter((entry) => entry.isFile() && !/\.(deb|tgz|tsbuildinfo)$/.test(entry.name))
    .map((entry) => join(CHECKOUT, entry.name));
  // Without a time from git, the package has the time of package.json.
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
