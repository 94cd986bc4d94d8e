/** What a live batch is made of, what goes to one target alone, and with which times it leaves. */
import { describe, expect, it } from 'vitest';
import type { Batch } from '../../src/buffer/client/lanes.ts';
import { STAMPED_HERE } from '../../src/buffer/format/value-columns.ts';
import { segmentId } from '../../src/buffer/span.ts';
import { end, look, MemoryStore, seriesOfCounts, told } from './memory-store.ts';

describe('a live batch', () => {
  it.each([
    [1, ['k1: 1', 'k2: 7', 'k1: 1']],
    [3, ['k1: 1 2, k2: 7', 'k2: 7, k1: 1 2', 'k1: 1 2, k2: 7']],
    [4, ['k1: 1 2 3, k2: 7', 'k2: 7 8, k1: 1 2', 'k1: 1 2 3, k2: 7']],
    [8, ['k1: 1 2 3 4 5 6, k2: 7 8', 'k2: 7 8 9, k1: 1 2 3 4 5', 'k1: 1 2 3 4 5 6, k2: 7 8']],
    [9, ['k1: 1 2 3 4 5 6, k2: 7 8 9', 'k2: 7 8 9, k1: 1 2 3 4 5 6', 'k1: 1 2 3 4 5 6, k2: 7 8 9']],
  ])('of at most %i values gives each series its share, another first each time', (maxValues, expected) => {
    // Of a third nothing waits.
    const store = new MemoryStore([1, 1, 1]);
    store.accept(seriesOfCounts(6, 3));
    expect(expected.map(() => look(store, { maxValues }))).toEqual(expected);
  });

  it.each([
    [9, 0, 'k1: 5, k2: 6'],
    [9, 1, 'k1: 1 5, k2: 6'],
    [9, 3, 'k1: 1 3 5, k2: 2 6'],
    [9, 99, 'k1: 1 3 5, k2: 2 4 6'],
    [4, 99, 'k1: 1 5, k2: 2 6'],
    [3, 99, 'k1: 1 5, k2: 6'],
    [2, 99, 'k1: 5, k2: 6'],
    [1, 99, 'k1: 5'],
    [9, undefined, 'k1: 5, k2: 6'],
  ])('of at most %i values takes of the backlog along, up to %s, what fits', (maxValues, alongValues, expected) => {
    const store = new MemoryStore([1, 1]);
    store.span([1, 2], 2);
    store.row([1, 2], 1);
    expect(look(store, { maxValues, ...(alongValues === undefined ? {} : { alongValues }) })).toBe(expected);
  });

  it('is none where nothing waits in the log, whatever the backlog has', () => {
    const store = new MemoryStore([1, 1]);
    store.span([1, 2], 2);
    expect(look(store, { alongValues: 99 })).toBeUndefined();
  });

  it('ends before a value that is late, and goes on behind it', () => {
    const store = new MemoryStore([1, 1]);
    store.accept([1], { timeOf: () => 50 });
    store.flushAll();
    const times = [60, 61, 40, 62, 63];
    store.accept(seriesOfCounts(5), { timeOf: (number) => times[number - 2]! });
    const first = store.take({})!;
    expect(told(first)).toBe('k1: 2 3');
    end(store, first, 'settle');
    expect(look(store, {})).toBe('k1: 5 6');
  });

  it('holds what is held, and no more than its body may', () => {
    const store = new MemoryStore([1, 1, 1]);
    store.accept(seriesOfCounts(2, 2, 2));
    store.state.holdSeries([2]);
    expect(look(store, {})).toBe('k1: 1 2, k3: 5 6');
    expect([look(store, { onlySeries: [2] }), look(store, { onlySeries: [4] })]).toEqual(['k2: 3 4', undefined]);
    store.state.holdSeries([]);
    const whole = store.take({ onlySeries: [1, 2, 3] })!;
    end(store, whole, 'release');
    const lengths = new Set<string | undefined>();
    for (let maxBytes = whole.body.length + 120; maxBytes > 0; maxBytes--) {
      store.asset().nextSeries = 0;
      const batch = store.take({ maxBytes });
      if (batch) {
        expect(batch.body.length).toBeLessThanOrEqual(maxBytes);
        end(store, batch, 'release');
      }
      lengths.add(told(batch));
    }
    expect([...lengths]).toEqual([
      'k1: 1 2, k2: 3 4, k3: 5 6',
      'k1: 1 2, k2: 3 4, k3: 5',
      'k1: 1 2, k2: 3 4',
      'k1: 1 2, k2: 3',
      'k1: 1 2',
      'k1: 1',
      undefined,
    ]);
  });
});

describe('batches of one target each', () => {
  /** Of instrumentations 8, 7 and 8, and of none twice. */
  const store = () => new MemoryStore([1, 1, 1, 1, 1], [8, 7, 8, undefined, undefined]);
  const takes = (one: MemoryStore, lane: 'live' | 'backlog', times: number) =>
    Array.from({ length: times }, () => {
      one.asset().nextSeries = 0;
      return look(one, { lane, oneInstrumentation: true, alongValues: 9 });
    });

  it.each(['live', 'backlog'] as const)('go to each in its turn, those without one alone, in the lane %s', (lane) => {
    const one = store();
    one.row([1, 2, 3, 4, 5], 1);
    if (lane === 'backlog') one.flushAll();
    expect(takes(one, lane, 6)).toEqual(['k5: 5', 'k4: 4', 'k2: 2', 'k1: 1, k3: 3', 'k5: 5', 'k4: 4']);
    one.state.holdSeries([2, 5]);
    expect(takes(one, lane, 3)).toEqual(['k1: 1, k3: 3', 'k4: 4', 'k1: 1, k3: 3']);
    expect(look(one, { lane, oneInstrumentation: true, onlySeries: [2] })).toBe('k2: 2');
    one.state.holdSeries([1, 2, 3, 4, 5]);
    expect(takes(one, lane, 1)).toEqual([undefined]);
  });

  it('pass over a target of which nothing may be taken now', () => {
    const one = store();
    const { id } = one.span([1, 2], 1);
    one.commit();
    one.statements.dropSegments.run(segmentId(id, 1), segmentId(id, 1));
    // That of the second series is awaited.
    one.missed = () => {};
    expect(takes(one, 'backlog', 2)).toEqual(['k1: 1', 'k1: 1']);
    expect(one.asset().lastTarget).toBe(8);
    one.statements.dropSegments.run(0, 2 ** 40);
    one.segments.forget(segmentId(id, 0));
    expect(takes(one, 'backlog', 1)).toEqual([undefined]);
  });

  it('take along only what goes the same way', () => {
    const one = store();
    one.span([1, 2, 3], 1);
    one.row([2, 3], 1);
    expect(takes(one, 'live', 2)).toEqual(['k2: 2 4', 'k1: 1, k3: 3 5']);
  });
});

describe('times that were stamped before the clock was trusted', () => {
  const STAMPED = { flags: STAMPED_HERE, timeOf: (number: number) => 1_000 * number };

  /** Two values of a run that is known since the machine's start; of another series two of a run before that, and three of this. */
  function stamped() {
    const store = new MemoryStore([1, 1]);
    store.state.stamps.noteRun(2, 5_000, 1_000);
    store.accept([1, 1], { ...STAMPED, run: 2 });
    store.accept([2, 2], { ...STAMPED, run: 1 });
    store.accept([2, 2, 2], { ...STAMPED, run: 2 });
    return store;
  }
  const times = ({ body }: Batch) => {
    const { values } = JSON.parse(new TextDecoder().decode(body)) as { values: { data: { timestamp: string }[] }[] };
    return values.map(({ data }) => data.map(({ timestamp }) => Date.parse(timestamp)));
  };

  const TRUSTED = [
    [997_000, 998_000],
    [3_000, 4_000, 1_001_000, 1_002_000, 1_003_000],
  ];
  const AS_THEY_ARE = [
    [1_000, 2_000],
    [3_000, 4_000, 5_000, 6_000, 7_000],
  ];

  it.each([
    ['live', 1_000_000, TRUSTED, [5, 2]],
    ['live', undefined, AS_THEY_ARE, [0, 7]],
    ['backlog', 1_000_000, TRUSTED, [5, 2]],
    ['backlog', undefined, AS_THEY_ARE, [0, 7]],
  ] as const)(
    'leave in the lane %s, the trusted time minus the clock being %s, each by its own run',
    (lane, trustedOffsetMs, expected, counted) => {
      const store = stamped();
      if (lane === 'backlog')
        for (const rows of [1, 1, 1]) {
          store.flush.begin(rows);
          store.flush.finish();
        }
      const batch = store.take({ lane, ...(trustedOffsetMs === undefined ? {} : { trustedOffsetMs }) })!;
      expect(times(batch)).toEqual(expected);
      expect([batch.corrected, batch.doubtful]).toEqual(counted);
      end(store, batch, 'settle');
      expect([store.state.logValues, store.state.segmentValues]).toEqual([0, 0]);
    },
  );

  it('are corrected as far as they leave: what waits behind them is none of the batch', () => {
    const store = stamped();
    const batch = store.take({ onlySeries: [2], maxValues: 4, trustedOffsetMs: 1_000_000 })!;
    expect([times(batch), batch.values, batch.corrected, batch.doubtful]).toEqual([
      [[3_000, 4_000, 1_001_000, 1_002_000]],
      4,
      2,
      2,
    ]);
    end(store, batch, 'settle');
    expect(store.state.seriesOf(2).queue.waiting).toBe(1);
  });
});
