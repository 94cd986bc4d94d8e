/** The store thread between launch and attachment to the agent. */
import { mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { Worker } from 'node:worker_threads';
import { afterEach, beforeEach, describe, expect, it, vi } from 'vitest';
import { storeThreadOptions } from '../../../src/agent/pace.ts';
import { type AgentStoreApi, agentStoreThread } from '../../../src/agent/store-worker.ts';
import { neverRan, StoreClient, StoreThread } from '../../../src/store/store-client.ts';
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

describe('stores opened before agent startup', () => {
  it('are used by the agent, regardless of when their reply arrives', async () => {
    const thread = agentStoreThread();
    thread.open(options());
    await vi.waitFor(() => expect(neverRan(stateDir)).toBe(false), 20_000);
    const first = client(thread);
    expect(await first.start()).toMatchObject({ series: [], setAside: [], facts: { logValues: 0 } });
    // The folder is locked, so another thread is rejected.
    await expect(client().start()).rejects.toMatchObject({ code: 'store.locked' });
    await first.stop();
    expect(deaths).toEqual([]);
  });

  it('do not affect the detection of a first startup', async () => {
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

  it('report subsequent failures with an error code and stop the thread', async () => {
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

describe('store thread that exits early', () => {
  it.each([
    ['with an error', 'setTimeout(() => { throw new Error("out of memory"); }, 20)', 'out of memory'],
    ['without an error', 'process.exit(7)', 'the store thread exited with 7'],
  ])('%s causes the agent’s calls to be rejected', async (_how, code, words) => {
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
