/**
 * What the store counts, beside a plain list of its values: whatever is taken in, flushed, taken, ended or lost, the state says of every
 * series, row, span and lane what counting all values anew says, and a commit writes just that.
 */
import { describe, expect, it } from 'vitest';
import { ComparedBooks } from './compared-books.ts';

describe('the books of a store', () => {
  it.each([1, 2, 3, 4])('hold after each step what counting every value anew gives, seed %i', (seed) => {
    const books = new ComparedBooks(seed);
    const { state } = books;
    const steps = [
      () => books.come(),
      () => books.come(),
      () => books.takeSome(),
      () => books.takeSome(),
      () => books.takeSome(),
      () => books.endSome(),
      () => books.endSome(),
      () => books.endSome(),
      () => books.flushSome(),
      () => books.record(),
      () => (books.random(3) === 0 ? books.holdSome() : undefined),
      () => (books.random(3) === 0 ? books.loseSome() : books.withdrawSome()),
    ];
    for (let turn = 0; turn < 160; turn++) {
      const before = books.signs();
      state.touched.clear();
      steps[books.random(steps.length)]!();
      books.expectCounted();
      const after = books.signs();
      for (const [asset, lanes] of after.lanes)
        if (before.lanes.get(asset) !== lanes) expect(state.touched).toContain(asset);
      for (const [span, { changes, state: now }] of after.spans) {
        const earlier = before.spans.get(span);
        if (earlier && earlier.state !== now) expect(changes).toBeGreaterThan(earlier.changes);
      }
      const hasMoved =
        [...before.spans.keys()].some((one) => !after.spans.has(one)) || after.spans.size > before.spans.size;
      if (hasMoved) expect(after.spanChanges).toBeGreaterThan(before.spanChanges);
    }
    expect(books.all.length).toBeGreaterThan(80);
  });
});
