import { describe, expect, it } from 'vitest';
import { FaultAttribution, type FaultKind } from '../../src/uplink/fault-attribution.ts';

/** Which faults are everyone's, by how many assets met one and how many posted lately. */
describe('a fault is everyone’s', () => {
  const KINDS: readonly FaultKind[] = ['later', 'refused', 'no-access'];
  const isEveryones = (fault: FaultKind, met: number, active: number, others: readonly FaultKind[] = []) => {
    const faults = new FaultAttribution(60_000);
    for (let asset = 1; asset <= active; asset++) faults.taken(asset, faults.number(), 0);
    for (let asset = 1; asset <= met; asset++) faults.met(fault, asset);
    for (const [index, other] of others.entries()) faults.met(other, 100 + index);
    return faults.isPlatform(fault, 0);
  };
  /** The fewest that make it so. */
  const fewest = (fault: FaultKind, active: number) => {
    for (let met = 0; met <= 20; met++) if (isEveryones(fault, met, active)) return met;
    return undefined;
  };

  it.each([
    ['later', [1, 1, 2, 3, 3, 3]],
    ['refused', [1, 1, 2, 3, 3, 3]],
    // Of permissions half of those that post, three at least.
    ['no-access', [3, 3, 3, 3, 4, 5]],
  ] as const)('of kind %s: enough of those that post', (fault, expected) => {
    expect([0, 1, 2, 5, 7, 10].map((active) => fewest(fault, active))).toEqual(expected);
  });

  it('with the others that any fault met, where it was met at all', () => {
    const [one, two] = [['refused'], ['refused', 'no-access']] as const;
    expect([isEveryones('later', 1, 5, one), isEveryones('later', 1, 5, two)]).toEqual([false, true]);
    expect([isEveryones('later', 0, 5, [...two, 'refused']), isEveryones('no-access', 2, 5, one)]).toEqual([
      false,
      false,
    ]);
  });

  it('counted once for an asset, from when it first met it', () => {
    const faults = new FaultAttribution(60_000);
    for (let asset = 1; asset <= 3; asset++) faults.met('later', asset);
    const between = faults.number();
    for (let turn = 0; turn < 5; turn++) faults.met('later', 1);
    expect(faults.assetsWith('later')).toEqual([1, 2, 3]);
    // It was struck out by what began after it was first met.
    faults.taken(9, between, 0);
    expect(KINDS.map((kind) => faults.assetsWith(kind))).toEqual([[], [], []]);
  });

  it('until something is taken of it, whichever it met', () => {
    const faults = new FaultAttribution(60_000);
    const before = faults.number();
    for (const kind of KINDS) for (const asset of [1, 2]) faults.met(kind, asset);
    faults.taken(1, before, 0);
    expect(KINDS.map((kind) => faults.assetsWith(kind))).toEqual([[2], [2], [2]]);
  });
});

describe('what was taken', () => {
  it('is known by the latest post, in whatever order the answers come', () => {
    const faults = new FaultAttribution(60_000);
    expect(faults.hasTakenSince(0)).toBe(false);
    faults.taken(1, 0, 0);
    expect(faults.hasTakenSince(0)).toBe(true);
    faults.taken(1, 7, 0);
    faults.taken(2, 3, 0);
    expect([faults.hasTakenSince(7), faults.hasTakenSince(8)]).toEqual([true, false]);
  });

  it('is numbered with what happens, in one order', () => {
    const faults = new FaultAttribution(60_000);
    expect([faults.number(), faults.next, faults.next]).toEqual([0, 1, 1]);
    faults.met('later', 1);
    faults.met('later', 1);
    faults.met('refused', 1);
    expect([faults.next, faults.number(), faults.next]).toEqual([3, 3, 4]);
  });

  it.each([
    [60_000, 60_000, false],
    [60_000, 60_001, true],
    [10_000, 10_000, false],
    [10_000, 10_001, true],
  ])('counts for %d ms, as it is set: after %d ms its asset shows nothing more, %s', (latelyMs, agoMs, isGone) => {
    const faults = new FaultAttribution(60_000);
    faults.setLately(latelyMs);
    faults.taken(1, 0, 5_000);
    expect(faults.isAlone(2, 5_000 + agoMs)).toBe(isGone);
    expect(faults.isAlone(1, 5_000 + agoMs)).toBe(true);
    faults.met('no-access', 3);
    expect(faults.isAlone(1, 5_000 + agoMs)).toBe(false);
  });
});
