/** The store thread between its launch and the moment when the agent takes it. */
import { mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { Worker } from 'node:worker_threads';
import { afterEach, beforeEach, describe, expect, it, vi } from 'vitest';
import { storeThreadOptions } from '../../src/daemon/pace.ts';
import { type AgentStoreApi, agentStoreThread } from '../../src/daemon/store-worker.ts';
import { neverRan, StoreClient, StoreThread } from '../../src/store/store-client.ts';
import { bufferSettings } from '../doubles/open-flow.ts';

let stateDir: string;
let deaths: string[];

beforeEach(() => {
  stateDir = join(mkdtempSync(join(tmpdir(), 'tagferry-start-')), 'state');
  deaths = [];
});
afterEach(() => rmSync(join(stateDir, '..'), { recursive: true }));

const options = () => storeThreadOptions(bufferSettings(stateDir));

const client = (thread = agentStoreThread()) =>
  new StoreClient<AgentStoreApi>(
    options(),
    { onDeath: ({ message }) => deaths.push(message), onSetAside() {} },
    thread,
  );

describe('stores that are opened while the agent is loaded', () => {
  it('are those that the agent then has, with their answer, however late it comes', async () => {
    const thread = agentStoreThread();
    thread.open(options());
    await vi.waitFor(() => expect(neverRan(stateDir)).toBe(false), 20_000);
    const first = client(thread);
    expect(await first.start()).toMatchObject({ series: [], setAside: [], facts: { logValues: 0 } });
    // It is the holder of the folder: another one is refused.
    await expect(client().start()).rejects.toMatchObject({ code: 'store.locked' });
    await first.stop();
    expect(deaths).toEqual([]);
  });

  it('leave a first start what it is, though they make the file', async () => {
    const thread = agentStoreThread();
    expect(thread.neverRan).toBe(undefined);
    thread.open(options());
    await vi.waitFor(() => expect(neverRan(stateDir)).toBe(false), 20_000);
    expect(thread.neverRan).toBe(true);
    const one = client(thread);
    await one.start();
    await one.stop();
    const again = agentStoreThread();
    again.open(options());
    expect(again.neverRan).toBe(false);
    const other = client(again);
    await other.start();
    await other.stop();
  });

  it('fail as they would fail later: with the code of the reason, and the thread ends', async () => {
    const holder = client();
    await holder.start();
    const thread = agentStoreThread();
    thread.open(options());
    const second = client(thread);
    await expect(second.start()).rejects.toMatchObject({ code: 'store.locked' });
    await expect(second.start()).rejects.toMatchObject({ code: 'store.closed' });
    await holder.stop();
  });
});

describe('a store thread that dies before anybody takes it', () => {
  it.each([
    ['with an error', 'setTimeout(() => { throw new Error("out of memory"); }, 20)', 'out of memory'],
    ['by ending', 'process.exit(7)', 'the store thread ended with 7'],
  ])('(%s) is told as dead to who takes it, and keeps nobody waiting', async (_how, code, words) => {
    let worker!: Worker;
    const thread = new StoreThread(() => {
      worker = new Worker(code, { eval: true });
      return worker;
    });
    thread.open(options());
    await new Promise((resolve) => worker.once('exit', resolve));
    await expect(client(thread).start()).rejects.toMatchObject({ code: 'store.dead' });
    expect(deaths).toEqual([words]);
  });
});
