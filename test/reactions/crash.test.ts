import { type ChildProcess, spawn } from 'node:child_process';
import { once } from 'node:events';
import { existsSync, mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterEach, beforeEach, expect, it, vi } from 'vitest';
import { systemClock } from '../../src/base/clock.ts';
import { wholeLines } from '../whole-lines.ts';
import { openJournal, threshold } from './parts/inbox-journal.ts';

let folder: string;
let daemon: ChildProcess | undefined;

beforeEach(() => {
  folder = mkdtempSync(join(tmpdir(), 'tagferry-crash-'));
});
afterEach(() => {
  daemon?.kill('SIGKILL');
  rmSync(folder, { recursive: true, force: true });
});

function startDaemon(file: string, script: string): ChildProcess {
  const program = join(import.meta.dirname, 'parts/reacting-process.ts');
  return spawn(process.execPath, [program, file, '/bin/sh', script, folder], { stdio: 'inherit' });
}

const lines = (name: string) => wholeLines(join(folder, name));

it('a reaction that kill -9 cut short runs again at the next start: what was done is not repeated, and no copy is left', async () => {
  const file = join(folder, 'inbox.db');
  const script = join(folder, 'valve.sh');
  // The first time it hangs; once the file is there it goes through.
  writeFileSync(script, 'echo $$ >> "$1/begun"; while [ ! -e "$1/go" ]; do sleep 0.05; done; echo done >> "$1/done"');
  const before = openJournal(file, systemClock);
  before.inbox.insertMany([threshold(1, systemClock.wallMs())]);
  before.close();

  daemon = startDaemon(file, script);
  await vi.waitUntil(() => lines('begun').length === 1, { timeout: 30_000 });
  daemon.kill('SIGKILL');
  await once(daemon, 'exit');

  daemon = startDaemon(file, script);
  await vi.waitUntil(() => lines('begun').length === 2, { timeout: 30_000 });
  const orphan = Number(lines('begun')[0]);
  expect(existsSync(`/proc/${orphan}`) && !/\) [ZX] /.test(readFileSync(`/proc/${orphan}/stat`, 'utf8'))).toBe(false);
  writeFileSync(join(folder, 'go'), '');
  await vi.waitUntil(() => lines('done').length === 1, { timeout: 30_000 });
  daemon.kill('SIGTERM');
  await once(daemon, 'exit');

  const after = openJournal(file, systemClock);
  expect(after.inbox.show(1)).toMatchObject({ state: 'done' });
  expect(lines('inbox.db.first')).toEqual(['first']);

  // A third start finds nothing to do.
  daemon = startDaemon(file, script);
  const marker = threshold(2, systemClock.wallMs(), 9_999);
  after.inbox.insertMany([marker]);
  await vi.waitUntil(() => after.inbox.show(2)?.state === 'done', { timeout: 30_000, interval: 100 });
  after.close();
  expect(lines('done')).toEqual(['done', 'done']);
  expect(lines('inbox.db.first')).toEqual(['first', 'first']);
});
