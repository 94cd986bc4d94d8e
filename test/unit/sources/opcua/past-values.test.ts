import { describe, expect, it } from 'vitest';
import { silentLogger } from '../../../../src/base/logger.ts';
import type { Note } from '../../../../src/buffer/client/notes.ts';
import type { ValueColumns } from '../../../../src/buffer/format/value-columns.ts';
import type { Reading } from '../../../../src/opcua/protocol.ts';
import { PastValues } from '../../../../src/sources/opcua/past-values.ts';
import { SourceStatus } from '../../../../src/sources/status.ts';
import { ManualClock } from '../../doubles/manual-clock.ts';

const NOW = Date.UTC(2026, 10, 25);
const SECOND = 1_000;
/** More than one note. */
const ITEMS = 250;

/** A server whose history of each item has a value in every second, and the store of the agent. */
class Server {
  readonly clock = new ManualClock(NOW);
  readonly log = silentLogger();
  /** Seconds of the stored values, after NOW. */
  readonly seconds: number[] = [];
  readonly events: string[] = [];
  readonly notes = new Map<string, string>();
  fails = false;
  status: SourceStatus | undefined;
  /** Values of the history instead of those in every second. */
  history: Reading[] | undefined;
  #keys: string[] = [];

  constructor() {
    for (const level of ['info', 'warn'] as const)
      this.log[level] = ((fields: { event: string }) => this.events.push(fields.event)) as typeof this.log.info;
  }

  /** Opens the source with the stored notes, as at startup. */
  open(items = ITEMS, historyMs = 1e9): PastValues {
    const points = Array.from({ length: items }, (_, series) => {
      return {
        name: `T v${series}`,
        series,
        shaping: { scale: 1, offset: 0, noValue: [-1], range: [0, 100] },
        spec: { trigger: 'value' },
      };
    });
    const source = { name: 'cell', timeFrom: 'source', spec: { historyMs } };
    const gate = {
      untilRoom: async () => {},
      rejectsPast: () => false,
      record: (_: unknown, notes: readonly Note[]) => this.store(notes),
      writePast: async (columns: ValueColumns, notes: readonly Note[]) => {
        for (let at = 0; at < columns.length; at++) this.seconds.push((columns.timeMs[at]! - NOW) / SECOND);
        this.store(notes);
      },
    };
    const status = new SourceStatus({
      name: 'cell',
      kind: 'opcua',
      points: points as never,
      isPolled: false,
      clock: this.clock,
      log: this.log,
    });
    this.status = status;
    const context = { clock: this.clock, log: this.log, source, points, gate, status };
    const keys = points.map(({ name }) => name);
    const readPage = async (_: number, { fromMs, untilMs }: { fromMs: number; untilMs: number }) => {
      if (this.fails) throw new Error('the page ends the connection');
      if (this.history) return { past: this.history };
      const past = [];
      for (let timeMs = fromMs + SECOND; timeMs < untilMs; timeMs += SECOND) past.push([1, timeMs, 0] as const);
      return { past };
    };
    const past = new PastValues(context as never, readPage, this.notes, keys, this.#keys);
    this.#keys = keys;
    return past;
  }

  /** Returns the size of the notes. */
  store(notes: readonly Note[]): number {
    for (const { name, text } of notes) {
      if (text === undefined) this.notes.delete(name.replace('source/cell/', ''));
      else this.notes.set(name.replace('source/cell/', ''), text);
    }
    return notes.reduce((sum, { text = '' }) => sum + text.length, 0);
  }

  /** Reads the history until all gaps are filled or abandoned. */
  async search(past: PastValues): Promise<void> {
    const end = new AbortController();
    past.run(end.signal).catch(() => {});
    for (let time = 0; time < 6; time++) await this.clock.advance(SECOND);
    end.abort();
  }
}

const ALL = Array.from({ length: ITEMS }, (_, at) => at);

/** Restarted source that has stored a value of each item at NOW. */
function restarted(items = ALL, historyMs?: number): { server: Server; past: PastValues } {
  const server = new Server();
  const before = server.open();
  before.resume(items);
  for (const at of ALL) before.record(at, NOW, false);
  server.store(before.notes());
  const past = server.open(ITEMS, historyMs);
  past.resume(items);
  past.expectGaps();
  return { server, past };
}

describe('past values of an OPC UA server', () => {
  it('are read once between the stored value and the first value after a restart', async () => {
    const { server, past } = restarted();
    past.record(120, NOW + 4 * SECOND, false);
    past.record(120, NOW + 9 * SECOND, false);
    await server.search(past);
    expect(server.seconds).toEqual([1, 2, 3]);
    expect(server.events).toEqual(['opcua.gap_filled']);
    const next = server.open();
    next.resume(ALL);
    await server.search(next);
    expect(server.seconds).toEqual([1, 2, 3]);
  });

  it('are still missing after a crash before they were read', async () => {
    const { server, past } = restarted();
    past.record(0, NOW + 3 * SECOND, true);
    server.store(past.notes());
    const next = server.open();
    next.resume(ALL);
    next.expectGaps();
    next.record(0, NOW + 6 * SECOND, false);
    await server.search(next);
    // The value between the two gaps is read again.
    expect(server.seconds).toEqual([1, 2, 3, 4, 5]);
  });

  it('are still missing after a crash before the first value of a new subscription', async () => {
    const { server, past } = restarted();
    server.store(past.notes());
    const next = server.open();
    next.resume(ALL);
    next.record(0, NOW + 4 * SECOND, false);
    await server.search(next);
    expect(server.seconds).toEqual([1, 2, 3]);
  });

  it('do not include the stored value with which a new subscription begins', () => {
    const { past } = restarted([]);
    past.record(0, NOW + SECOND, false);
    past.expectGaps();
    expect([past.record(0, NOW + SECOND, false), past.record(0, NOW + SECOND, false)]).toEqual([false, true]);
  });

  it('are not read at the first startup', async () => {
    const server = new Server();
    const past = server.open();
    past.resume(ALL);
    past.expectGaps();
    past.record(0, NOW, false);
    await server.search(past);
    expect([server.seconds, server.events]).toEqual([[], []]);
  });

  it.each([
    ['the server has no history', undefined, [], []],
    ['the server fails repeatedly', undefined, ALL, []],
    ['the gap is longer than history', 2 * SECOND, ALL, [3]],
  ])('are reported as missing if %s', async (what, historyMs, items, read) => {
    const { server, past } = restarted(items, historyMs);
    server.fails = what.includes('fails');
    past.record(0, NOW, false);
    past.record(0, NOW + 4 * SECOND, true);
    await server.search(past);
    expect([server.events.filter((event) => event === 'opcua.gap'), server.seconds]).toEqual([['opcua.gap'], read]);
  });

  it('are counted as rejected if they are not measurements', async () => {
    const { server, past } = restarted();
    past.record(0, NOW + 9 * SECOND, false);
    server.history = [
      [null, NOW + SECOND, 2, { problem: 'status BadSensorFailure' }],
      [1, NOW + 2 * SECOND, 0],
      ['open', NOW + 3 * SECOND, 0],
      [2, null, 0],
      [-1, NOW + 4 * SECOND, 0],
      [101, NOW + 5 * SECOND, 0],
    ];
    await server.search(past);
    expect(server.seconds).toEqual([2]);
    expect(server.status!.report(0)).toMatchObject({ errors: 5, rejected: { count: 5 } });
    expect(server.events.slice(0, 3)).toEqual(['source.not_a_number', 'source.no_value', 'source.out_of_range']);
  });

  it('keep their times on disk with a cost that depends on the changed values', () => {
    const { server, past } = restarted();
    const all = server.store(past.notes());
    past.record(7, NOW + SECOND, false);
    const one = server.store(past.notes());
    expect(one).toBeGreaterThan(0);
    expect(one).toBeLessThan(all / 2);
    expect(server.store(past.notes())).toBe(0);
  });

  it('have no notes after the source or its values are removed', () => {
    const { server, past } = restarted();
    expect(server.notes.size).toBe(3);
    server.store(past.notes());
    const fewer = server.open(10);
    server.store(fewer.notes());
    expect([...server.notes.keys()]).toEqual(['times/0']);
    fewer.forget();
    server.store(fewer.notes());
    expect(server.notes.size).toBe(0);
  });
});
