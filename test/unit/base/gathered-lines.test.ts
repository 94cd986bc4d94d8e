import { describe, expect, it } from 'vitest';
import { GATHER_MS, GatheredLines } from '../../../src/base/gathered-lines.ts';
import { ManualClock } from '../doubles/manual-clock.ts';

describe('grouped log lines', () => {
  it('contain the first object immediately, then one line for objects in the following seconds', async () => {
    const clock = new ManualClock();
    const lines = new GatheredLines<number>(clock);
    const written: number[][] = [];
    const note = (item: number, cause = 'a') => lines.note(cause, item, (items) => void written.push([...items]));
    note(1);
    note(2);
    note(3);
    note(100, 'b');
    expect(written).toEqual([[1], [100]]);
    await clock.advance(GATHER_MS);
    expect(written).toEqual([[1], [100], [2, 3]]);
    note(4);
    await clock.advance(GATHER_MS);
    expect(written.at(-1)).toEqual([4]);
    await clock.advance(GATHER_MS);
    // After a quiet interval, the next object is reported immediately again.
    note(5);
    expect(written.at(-1)).toEqual([5]);
    expect(written.flat().toSorted((a, b) => a - b)).toEqual([1, 2, 3, 4, 5, 100]);
  });
});
