import { type ChildProcess, spawn } from 'node:child_process';
import { once } from 'node:events';
import { mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterEach, beforeEach, describe, expect, it } from 'vitest';
import { systemClock } from '../../../src/base/clock.ts';
import { openDatabase } from '../../../src/base/database.ts';
import { Inbox } from '../../../src/webhook/inbox.ts';
import { sign } from '../../../src/webhook/signature.ts';
import { runnable, shown } from '../../unit/webhook/parts/inbox-events.ts';
import { anEvent, SECRET } from '../../unit/webhook/parts/listening.ts';

let folder: string;
let child: ChildProcess;
const database = () => join(folder, 'inbox.db');

async function startProcess(): Promise<number> {
  child = spawn(process.execPath, [join(import.meta.dirname, 'parts/listener-process.ts'), database(), SECRET], {
    stdio: ['ignore', 'pipe', 'inherit'],
  });
  const [line] = (await once(child.stdout!, 'data')) as [Buffer];
  return Number(line.toString());
}

async function kill(): Promise<void> {
  const gone = once(child, 'exit');
  child.kill('SIGKILL');
  await gone;
}

async function post(port: number, body: string): Promise<number | undefined> {
  const headers = { 'X-Hub-Signature-Sha256': sign(new TextEncoder().encode(body), SECRET) };
  try {
    return (await fetch(`http://127.0.0.1:${port}/webhook`, { method: 'POST', headers, body })).status;
  } catch {
    return undefined;
  }
}

beforeEach(() => {
  folder = mkdtempSync(join(tmpdir(), 'crash-'));
});
afterEach(() => rmSync(folder, { recursive: true }));

describe('webhook inbox after kill -9', () => {
  it('retains acknowledged events, accepts no duplicates, and reruns unfinished events', async () => {
    const acknowledged = new Set<string>();
    const sent: string[] = [];
    for (let round = 0; round < 6; round++) {
      const port = await startProcess();
      const killAfter = acknowledged.size + 5 + round * 13;
      let killed = false;
      const senders = Array.from({ length: 4 }, async () => {
        while (!killed) {
          // Repeats some events, as the platform does if a 204 is lost.
          const body = sent.length > 10 && sent.length % 7 === 0 ? sent[sent.length - 9]! : anEvent();
          sent.push(body);
          if ((await post(port, body)) === 204) acknowledged.add(body);
          if (acknowledged.size >= killAfter && !killed) {
            killed = true;
            child.kill('SIGKILL');
          }
        }
      });
      const gone = once(child, 'exit');
      await Promise.all([...senders, gone]);
    }
    const inbox = Inbox.open(openDatabase(database()), systemClock, 'boot');
    const kept = shown(inbox, { limit: 1_000 }).map((event) => event.payload);
    expect(acknowledged.size).toBeGreaterThan(100);
    expect([...acknowledged].filter((body) => !kept.includes(body))).toEqual([]);
    expect(new Set(kept).size).toBe(kept.length);
    expect(kept.filter((body) => !sent.includes(body))).toEqual([]);
    expect(runnable(inbox, 10_000)).toHaveLength(kept.length);

    const port = await startProcess();
    for (const body of [...acknowledged].slice(0, 30)) expect(await post(port, body)).toBe(204);
    await kill();
    expect(inbox.list({ limit: 1_000 })).toHaveLength(kept.length);
  });
});
