import { rmSync } from 'node:fs';
import { afterEach, beforeEach, describe, expect, it } from 'vitest';
import type { Batch, TakeRequest } from '../../../src/buffer/client/lanes.ts';
import { segmentId } from '../../../src/buffer/span.ts';
import { newFolder } from '../../fresh-folder.ts';
import { StoreFolder } from './store-folder.ts';

let world: StoreFolder;
let nowMs: number;
beforeEach(() => {
  world = new StoreFolder(newFolder('tagferry-taking-'));
  nowMs = 1_000;
});
afterEach(() => {
  world.store.close();
  rmSync(world.folder, { recursive: true, force: true });
});

/** Stores values and flushes the log into a span. */
function span(readings: Record<string, number[]>): void {
  world.commit(readings, { monotonicMs: nowMs });
  nowMs += 1e6;
  world.store.maintain({ monotonicMs: nowMs });
  world.commit({}, { monotonicMs: nowMs });
}

const take = (request: Partial<TakeRequest> = {}) =>
  world.store.take({ asset: 1, lane: 'backlog', maxValues: 100, maxBytes: 100_000, ...request }).batch;

/** `a: 1 2, b: 3`: readings by key. */
function contents(batch: Batch | undefined): string | undefined {
  if (!batch) return undefined;
  const { values } = JSON.parse(new TextDecoder().decode(batch.body)) as {
    values: { key: string; data: { value: number }[] }[];
  };
  return values.map(({ key, data }) => `${key}: ${data.map(({ value }) => value).join(' ')}`).join(', ');
}

/** Takes a batch and releases it. */
function preview(request: Partial<TakeRequest>): string | undefined {
  const batch = take(request);
  if (batch) world.store.release(batch.id);
  return contents(batch);
}

describe('backlog batch', () => {
  it.each([
    [1, 'a: 1'],
    [2, 'a: 1 2'],
    // A span that does not fit is split in proportion; shares are rounded up while space remains.
    [3, 'a: 1 2, b: 7'],
    [4, 'a: 1 2 3, b: 7'],
    [6, 'a: 1 2 3 4, b: 7 8'],
    [8, 'a: 1 2 3 4 5 6, b: 7 8'],
    // A span that fits is used completely, and the next span uses the remaining space.
    [9, 'a: 1 2 3 4 5 6, b: 7 8 9'],
    [10, 'a: 1 2 3 4 5 6 10, b: 7 8 9'],
    [12, 'a: 1 2 3 4 5 6 10, b: 7 8 9 11 12'],
    [99, 'a: 1 2 3 4 5 6 10, b: 7 8 9 11 12 13 14'],
  ])('contains at most %i values, oldest first, span by span', (maxValues, expected) => {
    span({ '1/a': [1, 2, 3, 4, 5, 6], '1/b': [7, 8, 9] });
    span({ '1/a': [10], '1/b': [11, 12, 13, 14] });
    expect(preview({ maxValues })).toBe(expected);
  });

  it('is split by series and then into halves', () => {
    span({ '1/a': [1], '1/b': [2, 3], '1/c': [4, 5, 6, 7, 8] });
    const divide = ({ id }: Batch) => world.store.divide(id).batches;
    const parts = divide(take()!);
    expect(parts.map(contents)).toEqual(['a: 1', 'b: 2 3, c: 4 5 6 7 8']);
    const [second, third] = divide(parts[1]!);
    expect([second, third, ...divide(third!)].map(contents)).toEqual(['b: 2 3', 'c: 4 5 6 7 8', 'c: 4 5', 'c: 6 7 8']);
  });

  it('can be settled in parts after it is split', () => {
    span({ '1/a': [1, 2, 3, 4, 5, 6, 7, 8] });
    const [front, back] = world.store.divide(take()!.id).batches;
    const [third, last] = world.store.divide(back!.id).batches;
    expect([front, third, last].map(contents)).toEqual(['a: 1 2 3 4', 'a: 5 6', 'a: 7 8']);
    world.store.settle(last!.id);
    world.store.settle(front!.id);
    expect(take()).toBeUndefined();
    world.store.release(third!.id);
    expect(preview({})).toBe('a: 5 6');
  });

  it('skips held series unless they are requested', () => {
    span({ '1/a': [1, 2], '1/b': [3] });
    world.store.holdSeries([1]);
    expect(preview({})).toBe('b: 3');
    const probes = [[1], [2], [1, 2], [], [3]].map((onlySeries) => preview({ onlySeries }));
    expect(probes).toEqual(['a: 1 2', 'b: 3', 'a: 1 2, b: 3', undefined, undefined]);
  });

  it('continues with the next span after an unreadable segment', () => {
    span({ '1/a': [1, 2], '1/b': [3] });
    span({ '1/a': [4], '1/b': [5] });
    world.database.exec(`DELETE FROM segment WHERE id = ${segmentId(1, 0)}`);
    expect(preview({})).toBe('b: 3 5, a: 4');
    expect(world.store.facts()).toMatchObject({ segmentValues: 3 });
  });

  it('blocks its lane for other batches', () => {
    span({ '1/a': [1, 4], '1/b': [2, 5], '2/c': [3, 6] });
    world.commit({ '1/a': [7], '1/b': [8] }, { monotonicMs: nowMs });
    const first = take({ maxValues: 1 })!;
    expect([contents(first), take()]).toEqual(['a: 1', undefined]);
    const live = take({ lane: 'live', alongValues: 9 })!;
    expect([contents(live), take({ lane: 'live' })]).toEqual(['a: 7, b: 8', undefined]);
    expect(contents(take({ asset: 2 }))).toBe('c: 3 6');
    world.store.settle(first.id);
    world.store.release(live.id);
    // A live batch with backlog values occupies both lanes.
    expect(contents(take({ lane: 'live', alongValues: 9 }))).toBe('a: 4 7, b: 2 5 8');
    expect([take({ lane: 'live' }), take()]).toEqual([undefined, undefined]);
  });

  it('contains no value that is later than one in flight in its series, even after a flush', () => {
    world.commit({ '1/a': [1] }, { monotonicMs: nowMs });
    const live = take({ lane: 'live' })!;
    span({ '1/a': [2], '1/b': [3] });
    expect(preview({})).toBe('b: 3');
    world.store.release(live.id);
    expect(preview({})).toBe('a: 1 2, b: 3');
  });
});
