import { describe, expect, it } from 'vitest';
import type { HistoryPage } from '../../../../src/opcua/protocol.ts';
import { PastValues } from '../../../../src/sources/opcua/past-values.ts';
import { ManualClock } from '../../doubles/manual-clock.ts';

const NOW = Date.UTC(2026, 10, 25);
const SECOND = 1_000;

interface Stored {
  baseMs: number;
  times: ReturnType<PastValues['toJSON']>['times'];
}

/** A server with history that has a value in every second. */
class Server {
  readonly clock = new ManualClock(NOW);
  /** Seconds of the stored values, after NOW. */
  readonly seconds: number[] = [];
  readonly missing: string[] = [];
  filled = 0;
  fails = false;
  /** The note after the latest commit. */
  note: Stored | undefined;

  open(stored: Stored = { baseMs: 0, times: [] }, historyMs = 1e9): PastValues {
    const point = { series: 1, shaping: { scale: 1, offset: 0 }, spec: { trigger: 'value' } };
    const source = { timeFrom: 'source', spec: { historyMs } };
    const past: PastValues = new PastValues(
      {
        context: () => ({ clock: this.clock, source, points: [point], gate: { rejectsPast: () => false } }) as never,
        readPage: async (_, { fromMs, untilMs }) => this.#page(fromMs, untilMs),
        store: async (columns) => {
          for (let at = 0; at < columns.length; at++) this.seconds.push((columns.timeMs[at]! - NOW) / SECOND);
          this.note = past.toJSON();
        },
        filled: ({ values }) => {
          this.filled += values;
        },
        missing: (_gap, why) => this.missing.push(why),
      },
      stored.baseMs,
      stored.times,
    );
    return past;
  }

  #page(fromMs: number, untilMs: number): HistoryPage {
    if (this.fails) throw new Error('the page ends the connection');
    const past = [];
    for (let timeMs = fromMs + SECOND; timeMs < untilMs; timeMs += SECOND) past.push([1, timeMs, 0] as const);
    return { past };
  }
}

/** Lets the search for gaps run. */
async function search(server: Server, past: PastValues, times = 1): Promise<void> {
  const end = new AbortController();
  past.run(end.signal).catch(() => {});
  for (let time = 0; time < times; time++) await server.clock.advance(SECOND);
  end.abort();
}

describe('past values of an OPC UA server', () => {
  it('are read between the stored value and the first value after a restart', async () => {
    const server = new Server();
    const before = server.open();
    before.resume([0]);
    before.record(0, NOW, false);
    const past = server.open(before.toJSON());
    past.resume([0]);
    past.expectGaps();
    past.record(0, NOW + 4 * SECOND, false);
    past.record(0, NOW + 9 * SECOND, false);
    await search(server, past);
    expect([server.seconds, server.filled]).toEqual([[1, 2, 3], 3]);
    expect(server.open(server.note).toJSON()).toEqual({ baseMs: NOW + 9 * SECOND, times: [[0]] });
  });

  it('are still missing after a crash before they were read', async () => {
    const server = new Server();
    const before = server.open();
    before.resume([0]);
    before.record(0, NOW, false);
    before.record(0, NOW + 3 * SECOND, true);
    const past = server.open(before.toJSON());
    past.resume([0]);
    past.expectGaps();
    past.record(0, NOW + 6 * SECOND, false);
    await search(server, past);
    expect(server.seconds).toEqual([1, 2, 4, 5]);
  });

  it('do not include the stored value with which a new subscription begins', () => {
    const server = new Server();
    const before = server.open();
    before.resume([0]);
    before.record(0, NOW, false);
    const past = server.open(before.toJSON());
    past.expectGaps();
    expect([past.record(0, NOW, false), past.record(0, NOW, false)]).toEqual([false, true]);
  });

  it('are not read at the first startup', async () => {
    const server = new Server();
    const past = server.open();
    past.resume([0]);
    past.expectGaps();
    past.record(0, NOW, false);
    await search(server, past);
    expect([server.seconds, server.missing]).toEqual([[], []]);
  });

  it.each([
    ['the server has no history', 1e9, [], []],
    ['the server fails three times', 1e9, [0], []],
    ['the gap is longer than history', 2 * SECOND, [0], [3]],
  ])('are reported as missing if %s', async (what, historyMs, items, read) => {
    const server = new Server();
    server.fails = what.includes('fails');
    const past = server.open(undefined, historyMs);
    past.resume(items);
    past.record(0, NOW, false);
    past.record(0, NOW + 4 * SECOND, true);
    await search(server, past, 3);
    expect([server.missing.length, server.seconds]).toEqual([1, read]);
  });
});
