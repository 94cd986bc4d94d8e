/** What a batch of the backlog is made of: of which segments and of which series how much, and what bars the way. */
import { describe, expect, it } from 'vitest';
import { freeEntry, sendEntry } from '../../src/buffer/batches/batch-slices.ts';
import { setAsideSegment, settleRuns } from '../../src/buffer/batches/settle.ts';
import { divideBatch } from '../../src/buffer/batches/take.ts';
import type { Batch } from '../../src/buffer/client/lanes.ts';
import { type Span, segmentId } from '../../src/buffer/span.ts';
import { end, look, MemoryStore, seriesOfCounts, told } from './memory-store.ts';

const backlog = (store: MemoryStore, maxValues: number) => look(store, { lane: 'backlog', maxValues });

describe('a batch of the backlog', () => {
  it.each([
    [1, 'k1: 1'],
    [2, 'k1: 1 2'],
    // A span that does not fit is shared in proportion, each share rounded up while there is room.
    [3, 'k1: 1 2, k2: 7'],
    [4, 'k1: 1 2 3, k2: 7'],
    [6, 'k1: 1 2 3 4, k2: 7 8'],
    [8, 'k1: 1 2 3 4 5 6, k2: 7 8'],
    // One that fits goes out whole, and what is left is shared by the next.
    [9, 'k1: 1 2 3 4 5 6, k2: 7 8 9'],
    [10, 'k1: 1 2 3 4 5 6 10, k2: 7 8 9'],
    [12, 'k1: 1 2 3 4 5 6 10, k2: 7 8 9 11 12'],
    [15, 'k1: 1 2 3 4 5 6 10 15, k2: 7 8 9 11 12 13 14'],
    [99, 'k1: 1 2 3 4 5 6 10 15, k2: 7 8 9 11 12 13 14 16'],
  ])('of at most %i values takes the oldest, span by span', (maxValues, expected) => {
    const store = new MemoryStore([1, 1]);
    for (const counts of [
      [6, 3],
      [1, 4],
      [1, 1],
    ]) {
      store.accept(seriesOfCounts(...counts));
      store.flushAll();
    }
    expect(backlog(store, maxValues)).toBe(expected);
  });

  /** Of the first series two segments in a span, of 2 and of 4 values; of the second one of 3. */
  function twoSegments(): { store: MemoryStore; span: Span } {
    const store = new MemoryStore([1, 1]);
    store.accept(seriesOfCounts(6, 3));
    const batch = store.take({ onlySeries: [1], maxValues: 2 })!;
    store.flushAll();
    end(store, batch, 'release');
    const span = store.state.spans[0]!;
    expect([...span.count]).toEqual([2, 4, 3]);
    return { store, span };
  }

  it.each([
    [3, 'k1: 1 2, k2: 7'],
    [4, 'k1: 1 2 3, k2: 7'],
    [6, 'k1: 1 2 3 4, k2: 7 8'],
    [9, 'k1: 1 2 3 4 5 6, k2: 7 8 9'],
  ])('of at most %i values shares by series, however many segments each has', (maxValues, expected) => {
    expect(backlog(twoSegments().store, maxValues)).toBe(expected);
  });

  it('takes nothing of a series that has some under way, what stands before what is settled, and of the others all', () => {
    const { store, span } = twoSegments();
    const { state, pending, segments } = store;
    store.span([1, 2], 1);
    const asset = store.asset();
    for (const entry of [0, 1]) {
      sendEntry(asset, span, entry, false);
      expect(backlog(store, 99)).toBe('k2: 7 8 9 11');
      freeEntry(asset, span, entry, false);
    }
    settleRuns(state, pending, segments, span, 1, [{ from: 1, to: 2 }]);
    expect(backlog(store, 99)).toBe('k1: 1 2 3, k2: 7 8 9 11');
    settleRuns(state, pending, segments, span, 1, [{ from: 0, to: 1 }]);
    settleRuns(state, pending, segments, span, 2, [{ from: 2, to: 3 }]);
    // Behind the end of a segment that is settled there goes nothing out of order.
    expect(backlog(store, 99)).toBe('k1: 1 2 5 6 10, k2: 7 8');
    settleRuns(state, pending, segments, span, 0, [{ from: 0, to: 2 }]);
    expect(backlog(store, 2)).toBe('k1: 5, k2: 7');
    expect(backlog(store, 4)).toBe('k1: 5 6, k2: 7 8');
    expect(backlog(store, 99)).toBe('k1: 5 6 10, k2: 7 8');
  });

  it('counts a segment as waiting again when the last batch that has some of it lets go', () => {
    const { store, span } = twoSegments();
    const asset = store.asset();
    const counted = () => [asset.backlog, span.underWay.get(1), span.changes];
    const steps = [sendEntry, sendEntry, freeEntry, freeEntry].map((step) => {
      step(asset, span, 1, false);
      return counted();
    });
    const { changes } = span;
    expect(steps).toEqual([
      [5, 1, changes - 3],
      [5, 2, changes - 2],
      [5, 1, changes - 1],
      [9, undefined, changes],
    ]);
    // Of what is held nothing waits.
    for (const step of [sendEntry, freeEntry]) step(asset, span, 1, true);
    expect(counted()).toEqual([9, undefined, changes + 2]);
  });

  it('finds again what was under way, though a place behind it in the backlog holds nothing any more', () => {
    const store = new MemoryStore([1, 2]);
    const [first, second, third] = [1, 2, 3].map(() => store.span([1, 2], 1)) as [Span, Span, Span];
    const { state, pending, segments } = store;
    const places = () => store.asset().places.map(({ span }) => span);
    sendEntry(store.asset(), first, 0, false);
    settleRuns(state, pending, segments, second, 0, [{ from: 0, to: 1 }]);
    expect([store.lanes().oldestBacklogAt, places()]).toEqual([third.place, [first, second, third]]);
    freeEntry(store.asset(), first, 0, false);
    expect([store.lanes().oldestBacklogAt, backlog(store, 9)]).toEqual([first.place, 'k1: 1 5']);
    // At the front they fall away, as many as there are.
    settleRuns(state, pending, segments, first, 0, [{ from: 0, to: 1 }]);
    expect([store.lanes().oldestBacklogAt, places()]).toEqual([third.place, [third]]);
  });

  it('ends like any other where a segment of it was lost meanwhile', () => {
    for (const how of ['settle', 'release'] as const) {
      const { store, span } = twoSegments();
      const { state, pending } = store;
      const batch = store.take({ lane: 'backlog' })!;
      expect(setAsideSegment(state, pending, span, 1, undefined)).toBe(4);
      end(store, batch, how);
      const left = how === 'settle' ? 0 : 5;
      expect([state.segmentValues, store.asset().backlog, store.lanes().backlog]).toEqual([left, left, left]);
      expect([span.left, span.underWay.size, state.spans.length]).toEqual(how === 'settle' ? [0, 0, 0] : [2, 0, 1]);
    }
  });

  it('is divided by its series, in their order, as long as it has several', () => {
    const store = new MemoryStore([1, 1, 1]);
    store.accept(seriesOfCounts(1, 2, 5));
    store.flushAll();
    const batch = store.take({ lane: 'backlog' })!;
    const divide = ({ id }: Batch) => divideBatch(store.state, store.body, store.state.batches.get(id)!);
    const parts = divide(batch) as [Batch, Batch];
    expect(parts.map(told)).toEqual(['k1: 1', 'k2: 2 3, k3: 4 5 6 7 8']);
    const [second, third] = divide(parts[1]) as [Batch, Batch];
    expect([second, third, ...divide(third)].map(told)).toEqual(['k2: 2 3', 'k3: 4 5 6 7 8', 'k3: 4 5', 'k3: 6 7 8']);
  });

  it('takes what is held of nobody, and of certain series whatever is held', () => {
    const { store } = twoSegments();
    store.state.holdSeries([1]);
    expect(backlog(store, 99)).toBe('k2: 7 8 9');
    const probe = (onlySeries: readonly number[]) => look(store, { lane: 'backlog', onlySeries });
    expect([probe([1]), probe([2]), probe([1, 2])]).toEqual([
      'k1: 1 2 3 4 5 6',
      'k2: 7 8 9',
      'k1: 1 2 3 4 5 6, k2: 7 8 9',
    ]);
    expect([probe([]), probe([3])]).toEqual([undefined, undefined]);
    expect([look(store, { asset: 2, lane: 'backlog' }), look(store, { lane: 'live' })]).toEqual([undefined, undefined]);
  });

  it.each([
    ['is lost', true, 'k1: 3 4 5 6 10, k2: 7 8 9 11'],
    ['is awaited, and bars its series', false, 'k2: 7 8 9 11'],
  ])('goes on where a segment does not read, which %s', (_, isLost, expected) => {
    const { store, span } = twoSegments();
    store.span([1, 2], 1);
    store.commit();
    store.statements.dropSegments.run(segmentId(span.id, 0), segmentId(span.id, 0));
    store.missed = (span, entry, bytes) => {
      if (isLost) setAsideSegment(store.state, store.pending, span, entry, bytes);
    };
    expect(backlog(store, 99)).toBe(expected);
  });

  it('takes of the next span what the room of a lost segment leaves', () => {
    const { store, span } = twoSegments();
    store.span([1, 2], 1);
    store.commit();
    store.statements.dropSegments.run(segmentId(span.id, 0), segmentId(span.id, 0));
    store.missed = (_, entry, bytes) => void setAsideSegment(store.state, store.pending, span, entry, bytes);
    expect(backlog(store, 8)).toBe('k1: 3 4 5 6 10, k2: 7 8 9');
  });

  it('takes none of it of a series of which something is left in the span before', () => {
    const { store, span } = twoSegments();
    store.span([1, 2], 1);
    store.commit();
    store.statements.dropSegments.run(segmentId(span.id, 0), segmentId(span.id, 0));
    store.missed = (_, entry, bytes) => void setAsideSegment(store.state, store.pending, span, entry, bytes);
    expect(backlog(store, 6)).toBe('k1: 3 4, k2: 7 8');
  });

  it('holds nothing of a segment of which no value fits into its body', () => {
    const { store } = twoSegments();
    const counts = new Set<string>();
    for (let maxBytes = 1_000; maxBytes > 150; maxBytes--) {
      const batch = store.take({ lane: 'backlog', maxBytes });
      if (!batch) continue;
      counts.add(
        store.state.batches
          .get(batch.id)!
          .slices.map(({ count }) => count)
          .join(' '),
      );
      end(store, batch, 'release');
    }
    expect([...counts]).toEqual(['2 4 3', '2 4 2', '2 4 1', '2 4', '2 3', '2 2', '2 1', '2', '1']);
  });

  it('that is divided is settled part by part, however often', () => {
    const store = new MemoryStore([1]);
    const span = store.span([1], 8);
    const batch = store.take({ lane: 'backlog' })!;
    const divide = (id: number) => divideBatch(store.state, store.body, store.state.batches.get(id)!);
    const [front, back] = divide(batch.id) as [Batch, Batch];
    const [third, last] = divide(back.id) as [Batch, Batch];
    expect([front, third, last].map(told)).toEqual(['k1: 1 2 3 4', 'k1: 5 6', 'k1: 7 8']);
    expect(span.underWay.get(0)).toBe(3);
    const [seventh, eighth] = divide(last.id) as [Batch, Batch];
    expect([told(seventh), divide(eighth.id)]).toEqual(['k1: 7', []]);
    const progress = (one: Batch) => {
      end(store, one, 'settle');
      return span.progress.get(0);
    };
    expect([progress(seventh), progress(front), progress(third)]).toEqual([
      [6, 7],
      [0, 4, 6, 7],
      [0, 7],
    ]);
  });

  it('is one at a time, and live ones go beside it', () => {
    const store = new MemoryStore([1, 1, 2]);
    store.span([1, 2, 3], 2);
    store.row([1, 2], 1);
    const first = store.take({ lane: 'backlog', maxValues: 1 })!;
    expect([told(first), store.take({ lane: 'backlog' })]).toEqual(['k1: 1', undefined]);
    const live = store.take({ alongValues: 9 })!;
    expect([told(live), store.take({ lane: 'live' })]).toEqual(['k1: 7, k2: 8', undefined]);
    expect(told(store.take({ asset: 2, lane: 'backlog' }))).toBe('k3: 3 6');
    end(store, first, 'settle');
    const next = store.take({ lane: 'backlog' })!;
    expect(told(next)).toBe('k1: 4, k2: 2 5');
    end(store, next, 'release');
    end(store, live, 'release');
    const along = store.take({ alongValues: 9 })!;
    expect(told(along)).toBe('k1: 4 7, k2: 2 5 8');
    // A live post that took some along is in both lanes.
    expect([store.take({ lane: 'live' }), store.take({ lane: 'backlog' })]).toEqual([undefined, undefined]);
  });
});
