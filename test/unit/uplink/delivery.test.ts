import { describe, expect, it } from 'vitest';
import type { Batch } from '../../../src/buffer/client/lanes.ts';
import { afterSlice, type Evidence, NO_SLICES, type Slices, shelve } from '../../../src/uplink/delivery.ts';
import { MAX_REJECTIONS } from '../../../src/uplink/series-waits.ts';

const batch = (id: number, values: number, series: number[]): Batch => ({
  id,
  asset: 7,
  series,
  values,
  liveValues: values,
  backlogValues: 0,
  body: new Uint8Array(100),
});
const REJECTED_AT = 5;
const refusal = { status: 400, message: 'no such unit' };
const deferred = [{ batch: batch(4, 1, [1]), refusal, at: REJECTED_AT }];
const shelved = [batch(5, 3, [1])];
const hopeless = { rejections: () => MAX_REJECTIONS };
const alone = { isAlone: () => true };

function decided(slices: Partial<Slices>, evidence: Partial<Evidence> = {}) {
  return afterSlice(
    { ...NO_SLICES, ...slices },
    {
      acceptedSince: () => false,
      rejections: () => 0,
      isAlone: () => false,
      isEveryoneRejected: () => false,
      ...evidence,
    },
  );
}

describe('delivery', () => {
  it.each<[string, string, Partial<Slices>, Partial<Evidence>]>([
    ['ends', 'no parts of the batch remain', {}, {}],
    ['continues', 'a part of the batch is waiting', { waiting: [batch(1, 10, [1])] }, {}],
    ['is parked', 'only rejected values remain', { deferred }, {}],
    ['starts an outage', 'every asset is rejected', { deferred }, { isEveryoneRejected: () => true }],
    [
      'continues',
      'a value was accepted after the rejection',
      { deferred },
      { acceptedSince: (post) => post === REJECTED_AT },
    ],
    ['continues', 'only shelved parts of the batch remain', { shelved }, hopeless],
    [
      'is parked',
      'shelved parts of the batch are waiting for a decision on rejected values',
      { shelved, deferred },
      hopeless,
    ],
    ['continues', 'a value of a shelved series was accepted', { shelved, deferred }, {}],
    [
      'continues',
      'its asset is the only active one and part of the batch was accepted',
      { deferred, accepted: 1 },
      alone,
    ],
    [
      'continues',
      'its asset is the only active one and fewer than 32 values were rejected',
      { deferred, shelved, rejections: 31 },
      { ...alone, ...hopeless },
    ],
    [
      'starts an outage',
      'its asset is the only active one and 32 values were rejected',
      { deferred, shelved, rejections: 32 },
      { ...alone, ...hopeless },
    ],
    ['starts an outage', 'its asset is the only active one and no other values remain', { deferred }, alone],
  ])('%s if %s', (outcome, _, slices, evidence) => {
    const next = { ends: 'end', continues: 'ready', 'is parked': 'parked', 'starts an outage': 'outage' }[outcome];
    expect(decided(slices, evidence).next).toBe(next);
  });

  it('reposts rejected values in order before other parts of the batch', () => {
    const second = { batch: batch(6, 1, [2]), refusal, at: 8 };
    const { slices } = decided(
      { deferred: [...deferred, second], waiting: [batch(1, 10, [3])] },
      { acceptedSince: (post) => post <= 8 },
    );
    expect(slices).toMatchObject({ waiting: [{ id: 4 }, { id: 6 }, { id: 1 }], again: new Set([4, 6]), deferred: [] });
  });

  it('sets aside only parts of the batch that contain no other series', () => {
    const waiting = [batch(5, 3, [1]), batch(6, 3, [2]), batch(7, 3, [1, 2])];
    expect(shelve({ ...NO_SLICES, waiting }, 1)).toMatchObject({
      shelved: [{ id: 5 }],
      waiting: [{ id: 6 }, { id: 7 }],
    });
  });
});
