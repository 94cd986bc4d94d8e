import { describe, expect, it } from 'vitest';
import type { Note } from '../../../../src/buffer/client/notes.ts';
import { ReadingPositions } from '../../../../src/sources/opcua/reading-positions.ts';

const NOW = Date.UTC(2026, 10, 25);

/** Notes as they are stored, by name without the prefix. */
class Stored {
  readonly notes = new Map<string, string>();

  write(notes: readonly Note[]): void {
    for (const { name, text } of notes) {
      const key = name.slice('p/'.length);
      if (text === undefined) this.notes.delete(key);
      else this.notes.set(key, text);
    }
  }

  open(...keys: string[]): ReadingPositions {
    return new ReadingPositions('p/', keys, this.notes);
  }
}

/** Positions of items with history and a stored value. */
function positionsAt(stored: Stored, ...keys: string[]): ReadingPositions {
  const positions = stored.open(...keys);
  positions.setHistory([...keys.keys()]);
  for (const item of keys.keys()) positions.record(item, NOW + item, false);
  stored.write(positions.takeNotes());
  return positions;
}

describe('reading positions', () => {
  it('open a gap between the stored value and the first value after a restart', () => {
    const stored = new Stored();
    positionsAt(stored, 'a', 'b');
    const positions = stored.open('a', 'b');
    positions.expectGaps();
    expect(positions.record(1, NOW + 500, false)).toBe(true);
    expect(positions.record(0, NOW, false)).toBe(false);
    expect(positions.record(0, NOW + 600, false)).toBe(false);
    expect(positions.nextGap()).toEqual({ item: 1, fromMs: NOW + 1, untilMs: NOW + 500 });
  });

  it('open no gap at first startup', () => {
    const positions = new Stored().open('a');
    positions.setHistory([0]);
    positions.expectGaps();
    expect(positions.record(0, NOW, false)).toBe(false);
    expect(positions.nextGap()).toBeUndefined();
  });

  it('open a gap before a value that reports discarded values', () => {
    const positions = positionsAt(new Stored(), 'a');
    expect(positions.record(0, NOW + 10, true)).toBe(true);
    expect(positions.nextGap()).toEqual({ item: 0, fromMs: NOW, untilMs: NOW + 10 });
  });

  it('restore the unfilled part of a gap after a crash', () => {
    const stored = new Stored();
    const before = positionsAt(stored, 'a');
    before.record(0, NOW + 1_000, true);
    before.narrow(before.nextGap()!, NOW + 400);
    stored.write(before.takeNotes());
    const positions = stored.open('a');
    expect(positions.nextGap()).toEqual({ item: 0, fromMs: NOW + 400, untilMs: NOW + 1_000 });
    positions.close(positions.nextGap()!);
    stored.write(positions.takeNotes());
    expect(stored.open('a').nextGap()).toBeUndefined();
  });

  it('follow items that change position', () => {
    const stored = new Stored();
    positionsAt(stored, 'a', 'b');
    const moved = stored.open('b', 'c', 'a');
    stored.write(moved.takeNotes());
    const positions = stored.open('b', 'c', 'a');
    positions.expectGaps();
    expect([0, 1, 2].map((item) => positions.record(item, NOW + 9, false))).toEqual([true, false, true]);
  });

  it('are stored only for items with history', () => {
    const stored = new Stored();
    const positions = stored.open('a');
    positions.record(0, NOW, false);
    expect(positions.takeNotes()).toEqual([]);
    positions.setHistory([0]);
    expect(positions.takeNotes().map(({ name }) => name)).toEqual(['p/items', 'p/positions/0']);
  });

  it('are stored in one note per 64 items, and can be removed completely', () => {
    const stored = new Stored();
    const keys = Array.from({ length: 130 }, (_, at) => `k${at}`);
    const positions = positionsAt(stored, ...keys);
    positions.record(70, NOW + 900, false);
    expect(positions.takeNotes().map(({ name }) => name)).toEqual(['p/positions/1']);
    stored.write(positions.removal());
    expect([...stored.notes]).toEqual([]);
  });

  it('limit the number of gaps per item', () => {
    const positions = positionsAt(new Stored(), 'a');
    const opened = Array.from({ length: 10 }, (_, at) => positions.record(0, NOW + 10 * (at + 1), true));
    expect(opened.filter(Boolean)).toHaveLength(8);
  });
});
