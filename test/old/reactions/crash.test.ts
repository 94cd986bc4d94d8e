import { type ChildProcess, spawn } from 'node:child_process';
import { once } from 'node:events';
import { existsSync, mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterEach, beforeEach, describe, expect, it, vi } from 'vitest';
import { systemClock } from '../../../src/base/clock.ts';
import { openJournal, threshold } from '../../unit/reactions/parts/inbox-journal.ts';
import { wholeLines } from '../../whole-lines.ts';

let folder: string;
let agent: ChildProcess | undefined;

beforeEach(() => {
  folder = mkdtempSync(join(tmpdir(), 'tagferry-crash-'));
});
afterEach(() => {
  agent?.kill('SIGKILL');
  rmSync(folder, { recursive: true, force: true });
});

function startAgent(file: string, script: string): ChildProcess {
  const program = join(import.meta.dirname, 'parts/reacting-process.ts');
  return spawn(process.execPath, [program, file, '/bin/sh', script, folder], { stdio: 'inherit' });
}

const lines = (name: string) => wholeLines(join(folder, name));

describe('reaction interrupted by kill -9', () => {
  it('runs again at the next startup without repeating completed actions or leaving orphaned processes', async () => {
    const file = join(folder, 'inbox.db');
    const script = join(folder, 'valve.sh');
    // Hangs until the file exists.
    writeFileSync(script, 'echo $$ >> "$1/begun"; while [ ! -e "$1/go" ]; do sleep 0.05; done; echo done >> "$1/done"');
    const before = openJournal(file, systemClock);
    before.inbox.insertMany([threshold(1, systemClock.wallMs())]);
    before.close();

    agent = startAgent(file, script);
    await vi.waitUntil(() => lines('begun').length === 1, { timeout: 30_000 });
    agent.kill('SIGKILL');
    await once(agent, 'exit');

    agent = startAgent(file, script);
    await vi.waitUntil(() => lines('begun').length === 2, { timeout: 30_000 });
    const orphan = Number(lines('begun')[0]);
    expect(existsSync(`/proc/${orphan}`) && !/\) [ZX] /.test(readFileSync(`/proc/${orphan}/stat`, 'utf8'))).toBe(false);
    writeFileSync(join(folder, 'go'), '');
    await vi.waitUntil(() => lines('done').length === 1, { timeout: 30_000 });
    agent.kill('SIGTERM');
    await once(agent, 'exit');

    const after = openJournal(file, systemClock);
    expect(after.inbox.show(1)).toMatchObject({ state: 'done' });
    expect(lines('inbox.db.first')).toEqual(['first']);

    agent = startAgent(file, script);
    const marker = threshold(2, systemClock.wallMs(), 9_999);
    after.inbox.insertMany([marker]);
    await vi.waitUntil(() => after.inbox.show(2)?.state === 'done', { timeout: 30_000, interval: 100 });
    after.close();
    expect(lines('done')).toEqual(['done', 'done']);
    expect(lines('inbox.db.first')).toEqual(['first', 'first']);
  });
});
