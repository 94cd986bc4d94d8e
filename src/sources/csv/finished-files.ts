/** What was read is moved out of the way, with a report beside it, and goes after a while. */
import { mkdir, readdir, rename, rm, stat, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { codeOf } from '../../base/errors.ts';

export type Finished = 'done' | 'failed';

const REPORT = '.report.txt';
const MAX_NAMES = 10_000;

/** Moves a file of the folder; gives where it stands now. Rejects with what the file system says. */
export async function moveFinished(folder: string, name: string, to: Finished, report: string): Promise<string> {
  await mkdir(join(folder, to), { recursive: true });
  const target = await freeName(join(folder, to), name);
  const path = join(folder, to, target);
  await writeFile(path + REPORT, report, { flag: 'w', mode: 0o644 });
  await rename(join(folder, name), path);
  return join(to, target);
}

/** A logger that uses its names again must not take away what stands there. */
async function freeName(folder: string, name: string): Promise<string> {
  const taken = new Set(await readdir(folder));
  for (let copy = 1; ; copy++) {
    const free = copy === 1 ? name : `${name}.${copy}`;
    if (!taken.has(free)) return free;
  }
}

/** Takes away what was moved to `done/` longer than `keepMs` ago by the machine's clock; gives how many files. */
export async function forgetDone(folder: string, keepMs: number, nowMs: number): Promise<number> {
  const done = join(folder, 'done');
  let gone = 0;
  const names = await readdir(done).catch((error: unknown) => {
    if (codeOf(error) === 'ENOENT') return [];
    throw error;
  });
  for (const report of names.filter((name) => name.endsWith(REPORT)).slice(0, MAX_NAMES)) {
    // The report was written when the file was moved.
    const { mtimeMs } = await stat(join(done, report));
    if (nowMs - mtimeMs < keepMs) continue;
    await rm(join(done, report.slice(0, -REPORT.length)), { force: true });
    await rm(join(done, report), { force: true });
    gone++;
  }
  return gone;
}
