import { describe, expect, it } from 'vitest';
import { MemoryBudget, type Reservation } from '../../../src/base/inbound/memory-budget.ts';

/** Budget of 4,000 bytes; a small body reserves at most 100 bytes. */
const budgetOf = (makeRoom?: () => boolean) =>
  new MemoryBudget({ maxBytes: 4_000, bodies: 10, ...(makeRoom && { makeRoom }) });

describe('request body memory budget', () => {
  it('allocates up to three quarters to large bodies, and the rest to small ones', () => {
    const budget = budgetOf();
    const [large, other, small, last] = Array.from({ length: 4 }, () => budget.reserve()) as [
      Reservation,
      Reservation,
      Reservation,
      Reservation,
    ];
    expect([large.grow(2_899), other.grow(101), other.grow(1), large.grow(1)]).toEqual([true, true, false, false]);
    expect([small.grow(100), small.grow(1), last.grow(100), budget.usedBytes]).toEqual([true, false, true, 3_200]);
    for (const one of [large, other, small, last]) one.set(0);
    expect([budget.usedBytes, large.grow(3_000), small.grow(100)]).toEqual([0, true, true]);
  });

  it('evicts as few slow bodies as needed', () => {
    const slow: Reservation[] = [];
    const budget = budgetOf(() => {
      const first = slow.shift();
      first?.set(0);
      return first !== undefined;
    });
    for (const bytes of [800, 1_000, 1_100]) {
      const body = budget.reserve();
      expect(body.grow(bytes)).toBe(true);
      slow.push(body);
    }
    const asks = budget.reserve();
    expect([asks.grow(1_500), slow.length, budget.usedBytes]).toEqual([true, 1, 2_600]);
    expect([asks.grow(3_000), slow.length, budget.usedBytes]).toEqual([false, 0, 1_500]);
  });

  it('counts the bytes of an evicted body once', () => {
    const self: Reservation[] = [];
    const budget = budgetOf(() => {
      const one = self.shift();
      one?.set(0);
      return one !== undefined;
    });
    const body = budget.reserve();
    expect(body.grow(2_900)).toBe(true);
    self.push(body);
    expect([body.grow(200), budget.usedBytes]).toEqual([true, 200]);
    body.set(0);
    expect([budget.usedBytes, budget.reserve().grow(3_000)]).toEqual([0, true]);
  });
});
