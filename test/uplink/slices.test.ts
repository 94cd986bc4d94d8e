import { describe, expect, it } from 'vitest';
import {
  allOf,
  type DeliveryState,
  hasUndecided,
  isBusy,
  putBack,
  type Slices,
  shelve,
  slicesIn,
  slicesOf,
  takeOut,
  tryAgain,
  unshelve,
} from '../../src/uplink/batch-delivery.ts';
import { batch } from './effects-world.ts';

const [ONE, TWO, BOTH] = [[1], [2], [1, 2]];
const REFUSAL = { status: 400, message: 'no' };
const DEFERRED = [
  { batch: batch(3, 1, ONE), refusal: REFUSAL, at: 5 },
  { batch: batch(4, 1, TWO), refusal: REFUSAL, at: 8 },
];
const SLICES: Slices = {
  waiting: [batch(5, 1, ONE), batch(6, 4, ONE), batch(7, 4, TWO), batch(8, 4, BOTH)],
  deferred: DEFERRED,
  shelved: [batch(9, 2, ONE), batch(10, 2, TWO), batch(11, 2, BOTH)],
  again: new Set([5]),
  loneRefusals: 2,
  taken: 1,
  isDivided: true,
};
const NONE: Slices = {
  waiting: [],
  deferred: [],
  shelved: [],
  again: new Set(),
  loneRefusals: 0,
  taken: 0,
  isDivided: false,
};

/** The slices, each by its id. */
const ids = ({ waiting, deferred, shelved, again, ...facts }: Slices) => ({
  waiting: waiting.map(({ id }) => id),
  deferred: deferred.map((one) => one.batch.id),
  shelved: shelved.map(({ id }) => id),
  again: [...again],
  ...facts,
});
const BEFORE = ids(SLICES);

describe('the slices of a batch', () => {
  it('are at first the batch itself, and none where it has none', () => {
    expect(slicesOf(SLICES.waiting[0]!)).toEqual({ ...NONE, waiting: [SLICES.waiting[0]] });
    expect(slicesIn({ kind: 'ready', slices: SLICES, sinceMs: 0 })).toBe(SLICES);
    for (const kind of ['returning', 'over'] as const) expect(slicesIn({ kind })).toEqual(NONE);
    expect(slicesIn({ kind: 'taking', after: 'next' })).toEqual(NONE);
  });

  it('take their places again before the others', () => {
    expect(ids(putBack(SLICES, [batch(1), batch(2)]))).toEqual({ ...BEFORE, waiting: [1, 2, 5, 6, 7, 8] });
  });

  it('of a series alone are put aside behind those that are so already, and come back before the others', () => {
    expect(ids(shelve(SLICES, 1))).toEqual({ ...BEFORE, waiting: [7, 8], shelved: [9, 10, 11, 5, 6] });
    expect(ids(shelve(SLICES, 3))).toEqual(BEFORE);
    expect(ids(unshelve(SLICES))).toEqual({ ...BEFORE, waiting: [9, 10, 11, 5, 6, 7, 8], shelved: [] });
    const ofTwo = unshelve(SLICES, ({ series }) => series[0] === 2);
    expect(ids(ofTwo)).toEqual({ ...BEFORE, waiting: [10, 5, 6, 7, 8], shelved: [9, 11] });
  });

  it('that were refused alone are tried again before everything else, all or some', () => {
    expect(ids(tryAgain(SLICES))).toEqual({
      ...BEFORE,
      waiting: [3, 4, 5, 6, 7, 8],
      deferred: [],
      again: [5, 3, 4],
    });
    const late = tryAgain(SLICES, ({ at }) => at === 8);
    expect(ids(late)).toEqual({ ...BEFORE, waiting: [4, 5, 6, 7, 8], deferred: [3], again: [5, 4] });
    expect(tryAgain(SLICES, () => false)).toBe(SLICES);
  });

  it('of a series are undecided while one of them was put off or is tried again', () => {
    const deferred = DEFERRED.slice(0, 1);
    expect(hasUndecided({ ...SLICES, again: new Set(), deferred }, 1)).toBe(true);
    expect(hasUndecided({ ...SLICES, again: new Set(), deferred }, 2)).toBe(false);
    expect(hasUndecided({ ...SLICES, deferred: [] }, 1)).toBe(true);
    expect(hasUndecided({ ...SLICES, deferred: [] }, 2)).toBe(false);
    expect(hasUndecided({ ...SLICES, deferred: [], again: new Set([8]) }, 1)).toBe(false);
    expect(hasUndecided({ ...SLICES, deferred: [], again: new Set([9]) }, 1)).toBe(false);
  });

  it('of a series are taken out in their order; what holds another too stays', () => {
    const { out, left } = takeOut(SLICES, 1);
    expect(out.map(({ id }) => id)).toEqual([9, 5, 6]);
    expect(ids(left)).toEqual({ ...BEFORE, waiting: [7, 8], shelved: [10, 11] });
  });

  it('are all of those that are put off, put aside or waiting, the oldest first', () => {
    expect(allOf(SLICES).map(({ id }) => id)).toEqual([3, 4, 9, 10, 11, 5, 6, 7, 8]);
  });
});

describe('a batch', () => {
  const states: Record<DeliveryState['kind'], boolean> = {
    taking: true,
    paying: true,
    posting: true,
    dividing: true,
    deciding: true,
    ready: false,
    parked: false,
    returning: true,
    over: false,
  };
  it.each(Object.entries(states))('that is %s has one of the sockets: %s', (kind, has) => {
    expect(isBusy({ kind } as DeliveryState)).toBe(has);
  });
});
