import { afterEach, beforeEach, describe, expect, it } from 'vitest';
import { silentLogger } from '../../../src/base/logger.ts';
import { Committer } from '../../../src/buffer/client/committer.ts';
import { ValueColumns } from '../../../src/buffer/format/value-columns.ts';
import { SeriesCatalogue } from '../../../src/buffer/series.ts';
import type { CommitRequest, StoreFacts } from '../../../src/buffer/store-facts.ts';
import { Intake } from '../../../src/sources/intake/intake.ts';
import { Stamps } from '../../../src/sources/intake/stamps.ts';
import { HttpPush, PUSH_LISTENER } from '../../../src/sources/push/http-push.ts';
import { commitColumns } from '../doubles/commit-columns.ts';
import { inboundServer, portOf } from '../doubles/inbound-server.ts';
import { ManualClock } from '../doubles/manual-clock.ts';
import { PLANT, until } from '../sources/sink-double.ts';

const MAX_WAITING = 10;
const FACTS: StoreFacts = {
  lanes: [],
  logValues: 0,
  segmentValues: 0,
  notLoaded: 0,
  quarantined: 0,
  spans: 0,
  disk: { bytes: 0, walBytes: 0, usedBytes: 0, reusableBytes: 0, freeBytes: 0, totalBytes: 0 },
  short: false,
  full: false,
  spare: false,
  oversized: false,
  isCarrying: false,
  oldestAcceptedMs: undefined,
  dirty: false,
  maintenanceDue: false,
  dropped: [],
  damaged: [],
};

/** Store on a stalled disk, whose commits complete when the test allows it. */
class StalledStore {
  readonly stored: number[] = [];
  #stalled: (() => void)[] = [];
  #answers = false;

  get stalled(): number {
    return this.#stalled.length;
  }

  commit({ columns }: CommitRequest): Promise<StoreFacts> {
    return new Promise((resolve) => {
      this.#stalled.push(() => {
        if (columns) this.stored.push(...columns.value.subarray(0, columns.length));
        resolve(FACTS);
      });
      if (this.#answers) this.answer();
    });
  }

  maintain = () => Promise.resolve(FACTS);
  vacuum = () => Promise.resolve(FACTS);

  /** Completes the oldest commit. */
  answerOne(): void {
    this.#stalled.shift()?.();
  }

  /** Completes all commits from now on. */
  answer(): void {
    this.#answers = true;
    for (const over of this.#stalled.splice(0)) over();
  }
}

let clock: ManualClock;
let store: StalledStore;
let catalogue: SeriesCatalogue;
let committer: Committer;
let next = 0;

beforeEach(() => {
  clock = new ManualClock();
  store = new StalledStore();
  catalogue = new SeriesCatalogue();
  next = 0;
  committer = new Committer(store, {
    clock,
    catalogue,
    intervalMs: 0,
    values: 1,
    maxWaiting: MAX_WAITING,
    onFacts: () => {},
  });
});
afterEach(async () => {
  store.answer();
  await committer.close();
});

/** Values with unique readings. */
function append(count: number): Promise<void> {
  const columns = new ValueColumns();
  for (let i = 0; i < count; i++) columns.add(catalogue.idOf(1, 'k', undefined, undefined), next, next++, 0);
  return commitColumns(committer, columns);
}

describe('values during a disk stall', () => {
  it('are queued up to a limit, above which entire requests are rejected', async () => {
    const first = append(3);
    await until(() => store.stalled === 1);
    const second = append(6);
    const third = append(5);
    await expect(third).rejects.toMatchObject({ code: 'buffer.busy', retryable: true });
    expect(committer.waitingValues).toBe(6);
    // Exactly up to the limit.
    const fourth = append(4);
    for (let i = 0; i < 100; i++) await expect(append(1)).rejects.toMatchObject({ code: 'buffer.busy' });
    expect(committer.waitingValues).toBe(MAX_WAITING);
    expect(store.stalled).toBe(1);
    // A rejection for lack of memory is not a failure of the disk.
    expect(committer.failure).toBeUndefined();

    store.answer();
    await Promise.all([first, second, fourth]);
    const after = append(2);
    await clock.advance(1);
    await after;
    expect(store.stored).toEqual([0, 1, 2, 3, 4, 5, 6, 7, 8, 14, 15, 16, 17, 118, 119]);
    expect(committer.waitingValues).toBe(0);
  });

  it('wait only for the commit in progress', async () => {
    const appended = [append(1)];
    await until(() => store.stalled === 1);
    appended.push(append(1));
    for (let turn = 0; turn < 5; turn++) {
      store.answerOne();
      await appended[turn];
      await until(() => store.stalled > 0);
      appended.push(append(1));
      expect(store.stalled).toBe(1);
      expect(committer.waitingValues).toBe(1);
    }
    store.answer();
    await Promise.all(appended);
    expect(store.stored).toEqual([0, 1, 2, 3, 4, 5, 6]);
  });

  it('are accepted regardless of their number if no other values are waiting', async () => {
    const first = append(1);
    await until(() => store.stalled === 1);
    const large = append(MAX_WAITING * 3);
    await expect(append(1)).rejects.toMatchObject({ code: 'buffer.busy' });
    store.answer();
    await Promise.all([first, large]);
    expect(store.stored).toHaveLength(1 + MAX_WAITING * 3);
  });

  it('are rejected with 503 and Retry-After, and accepted with 204 once the disk responds', async () => {
    const intake = new Intake({ catalogue, tags: PLANT, committer, stamps: new Stamps(), clock, log: silentLogger() });
    const server = inboundServer(PUSH_LISTENER, { clock });
    const push = new HttpPush({
      server,
      rules: { token: undefined },
      intake,
      clock,
      log: silentLogger(),
    });
    await server.start();
    push.start();
    const post = async (count: number) => {
      const values = Array.from({ length: count }, (_, i) => ({ tag: 'FT-101', key: 'flow', value: i }));
      const response = await fetch(`http://127.0.0.1:${portOf(server)}/v1/values`, {
        method: 'POST',
        headers: { 'Content-Type': 'application/json' },
        body: JSON.stringify({ values }),
      });
      return { status: response.status, later: response.headers.get('retry-after') };
    };
    try {
      const first = post(1);
      await until(() => store.stalled === 1);
      const waiting = post(MAX_WAITING);
      await until(() => committer.waitingValues === MAX_WAITING);
      const refused = await post(1);
      expect(refused.status).toBe(503);
      expect(Number(refused.later)).toBeGreaterThan(0);
      store.answer();
      expect([(await first).status, (await waiting).status]).toEqual([204, 204]);
      expect((await post(1)).status).toBe(204);
      expect(store.stored).toHaveLength(MAX_WAITING + 2);
    } finally {
      store.answer();
      await server.stop();
    }
  });
});
