/** What stands in quarantine: sent again step by step, counted and shown. */
import { rmSync } from 'node:fs';
import { join } from 'node:path';
import { describe, expect, it } from 'vitest';
import { type Database, openDatabase } from '../../src/base/database.ts';
import { packSegment } from '../../src/buffer/format/segment.ts';
import { OperatorCalls, type OperatorParts } from '../../src/buffer/operator/operator-calls.ts';
import { requeue, searchQuarantine, showQuarantine } from '../../src/buffer/operator/requeueing.ts';
import { Pending } from '../../src/buffer/pending.ts';
import { prepareStatements, prepareTables, quarantineSum, type Statements } from '../../src/buffer/tables.ts';
import { memoryFolder } from '../memory-folder.ts';
import { range, SpanWorld } from './span-world.ts';

describe('quarantine', () => {
  /** Rows with so many values each, of series in turn, numbered as they come. */
  function quarantined(
    counts: readonly number[],
    run: (statements: Statements, world: SpanWorld, database: Database) => void,
  ): void {
    const folder = memoryFolder('tagferry-quarantine-');
    const database = openDatabase(join(folder, 'buffer.db'));
    try {
      prepareTables(database);
      const statements = prepareStatements(database);
      let number = 0;
      database.transaction(() => {
        for (const [at, count] of counts.entries()) {
          const series = 1 + (at % 3);
          const value = Float64Array.from({ length: count }, () => ++number);
          const packed = packSegment({ count, value, timeMs: value, flags: new Uint8Array(count).fill(at % 8) });
          const sum = quarantineSum(series, count, 400 + at, 'no', at);
          statements.addQuarantine.run(series, count, packed, 400 + at, 'no', at, sum);
        }
      })();
      run(statements, new SpanWorld(2), database);
    } finally {
      database.close();
      rmSync(folder, { recursive: true, force: true });
    }
  }
  const ALL = { after: 0, through: 1e9 };

  it('is sent again row by row, of the series that are known and wanted, as far as it is told', () => {
    quarantined([2, 3, 4, 5, 6, 7, 8], (statements, { state }) => {
      const of = (request: Partial<Parameters<typeof requeue>[3]>, leaving: number[] = []) => {
        const pending = new Pending();
        pending.releasedQuarantine.push(...leaving);
        const step = requeue(statements, state, pending, { ...ALL, ...request });
        const { length, series, timeMs, value, flags } = pending.moved;
        const rows = Array.from({ length }, (_, i) => [series[i], timeMs[i], value[i], flags[i]]);
        return { step, released: pending.releasedQuarantine, rows };
      };
      // Times of 1970 by a clock that nobody knows: none is marked as to be corrected any more.
      const row = (id: number, from: number, count: number) =>
        range(from, from + count - 1).map((number) => [1 + ((id - 1) % 3), number, number, (id - 1) % 4]);
      // Nobody knows the third series.
      expect(of({})).toEqual({
        step: { values: 2 + 3 + 5 + 6 + 8, after: undefined },
        released: [1, 2, 4, 5, 7],
        rows: [...row(1, 1, 2), ...row(2, 3, 3), ...row(4, 10, 5), ...row(5, 15, 6), ...row(7, 28, 8)],
      });
      expect(of({ series: [2] })).toEqual({
        step: { values: 9, after: undefined },
        released: [2, 5],
        rows: [...row(2, 3, 3), ...row(5, 15, 6)],
      });
      expect(of({ after: 2, through: 4 })).toEqual({
        step: { values: 5, after: undefined },
        released: [4],
        rows: row(4, 10, 5),
      });
      expect(of({ through: 2 }, [1])).toEqual({
        step: { values: 3, after: undefined },
        released: [1, 2],
        rows: row(2, 3, 3),
      });
    });
  });

  it.each([
    [
      'ten thousand values',
      [5_000, 5_000, 0, 1],
      [
        [10_000, 2],
        [1, undefined],
      ],
    ],
    [
      'a row more where a value lacks',
      [5_000, 4_999, 1, 5, 2],
      [
        [10_004, 4],
        [2, undefined],
      ],
    ],
  ] as [string, number[], [number, number | undefined][]][])('is sent again %s a step', (_, counts, steps) => {
    // Of the third series, which nobody knows, a row stays.
    quarantined(
      counts.map((count) => Math.max(1, count)),
      (statements, { state }) => {
        const found: [number, number | undefined][] = [];
        for (let after: number | undefined = 0; after !== undefined; ) {
          const step = requeue(statements, state, new Pending(), { ...ALL, after });
          found.push([step.values, step.after]);
          ({ after } = step);
        }
        expect(found).toEqual(steps);
      },
    );
  });

  it('is sent again five hundred rows a step', () => {
    quarantined(Array(1_000).fill(1), (statements, { state }) => {
      const step = (after: number) => requeue(statements, state, new Pending(), { ...ALL, after, series: [1] });
      expect([step(0), step(500), step(501), step(1_000)]).toEqual([
        { values: 167, after: 500 },
        { values: 167, after: 1_000 },
        { values: 167, after: undefined },
        { values: 0, after: undefined },
      ]);
    });
  });

  it('stays where its values do not read, though the rest of its row does', () => {
    quarantined([2, 3], (statements, { state }, database) => {
      database.exec("UPDATE quarantine SET packed = x'0011223344556677' WHERE id = 1");
      const pending = new Pending();
      expect(requeue(statements, state, pending, ALL)).toEqual({ values: 3, after: undefined });
      expect(pending.releasedQuarantine).toEqual([2]);
      expect(showQuarantine(statements, { after: 0, limit: 1 })).toMatchObject([
        { count: 2, value: [], damaged: true },
      ]);
    });
  });

  it('is counted by series, and leaves the count of the store as it is sent again', () => {
    quarantined([2, 3, 4, 5], (statements, { state, pending }) => {
      state.quarantined = 20;
      const parts = { state, pending, statements, facts: () => 'facts' };
      const operator = new OperatorCalls(parts as unknown as OperatorParts);
      const series = [
        { series: 1, count: 7 },
        { series: 2, count: 3 },
        { series: 3, count: 4 },
      ];
      expect(operator.countQuarantine()).toEqual({ last: 4, series });
      expect(operator.showQuarantine({ after: 3, limit: 9 })).toEqual(
        showQuarantine(statements, { after: 3, limit: 9 }),
      );
      expect(operator.requeue({ ...ALL, series: [1] })).toEqual({ values: 7, after: undefined, facts: 'facts' });
      expect(state.quarantined).toBe(13);
    });
    quarantined([], (statements) => {
      const operator = new OperatorCalls({ statements } as unknown as OperatorParts);
      expect(operator.countQuarantine()).toEqual({ last: 0, series: [] });
    });
  });

  it('is searched by series, some thousand rows a step', () => {
    // Series 1, 2 and 3 in turn.
    quarantined(Array(9_000).fill(1), (statements) => {
      const ids: number[] = [];
      let steps = 0;
      for (let after: number | undefined = 0; after !== undefined; steps++) {
        const step = searchQuarantine(statements, { after, series: [2] });
        ids.push(...step.rows.map(({ id }) => id));
        ({ after } = step);
      }
      expect(ids).toEqual(Array.from({ length: 3_000 }, (_, i) => 3 * i + 2));
      expect(searchQuarantine(statements, { after: 0, series: [] })).toEqual({ rows: [], after: 5_000 });
      expect(searchQuarantine(statements, { after: 5_000, series: [] })).toEqual({ rows: [], after: undefined });
      expect(steps).toBeLessThan(9_000 / 200);
    });
  });

  it('is shown page by page, with the first values of each row', () => {
    quarantined([7, 2, 1], (statements) => {
      const row = (at: number, readings: number[], count: number) => ({
        id: at + 1,
        series: at + 1,
        count,
        status: 400 + at,
        message: 'no',
        atMs: at,
        timeMs: readings,
        value: readings,
        damaged: false,
      });
      const rows = [row(0, [1, 2, 3, 4, 5], 7), row(1, [8, 9], 2), row(2, [10], 1)];
      expect(showQuarantine(statements, { after: 0, limit: 9 })).toEqual(rows);
      expect(showQuarantine(statements, { after: 1, limit: 1 })).toEqual([rows[1]]);
    });
  });
});
