import { rmSync } from 'node:fs';
import { join } from 'node:path';
import { describe, expect, it } from 'vitest';
import { type Database, openDatabase } from '../../../src/base/database.ts';
import { packSegment } from '../../../src/buffer/format/segment.ts';
import { type Requeueing, requeue, searchQuarantine, showQuarantine } from '../../../src/buffer/operator/requeueing.ts';
import { StoreState } from '../../../src/buffer/state.ts';
import { prepareStatements, prepareTables, quarantineSum, type Statements } from '../../../src/buffer/tables.ts';
import { newFolder } from '../../fresh-folder.ts';
import { seriesOf } from './hand-made-buffer.ts';

const ALL: Requeueing = { after: 0, through: 1e9 };

/** Fills a quarantine with rows of `counts` values, of series 1, 2 and 3 in turn. The store knows series 1 and 2. */
function withQuarantine(
  counts: readonly number[],
  run: (statements: Statements, state: StoreState, database: Database) => void,
): void {
  const folder = newFolder('tagferry-quarantine-');
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
    const state = new StoreState();
    for (const id of [1, 2]) state.addSeries(seriesOf(id));
    run(statements, state, database);
  } finally {
    database.close();
    rmSync(folder, { recursive: true, force: true });
  }
}

describe('quarantine', () => {
  it.each<[string, Partial<Requeueing>, number[], number[]]>([
    ['all rows of known series', {}, [1, 2, 4, 5, 7], [1, 2, 3, 4, 5, 10]],
    ['the rows of one series', { series: [2] }, [2, 5], [3, 4, 5, 15, 16, 17]],
    ['the rows of a range', { after: 2, through: 4 }, [4], [10, 11, 12, 13, 14]],
  ])('requeues %s including their values', (_, request, rows, firstValues) => {
    withQuarantine([2, 3, 4, 5, 6, 7, 8], (statements, state) => {
      const { values, after } = requeue(statements, state, { ...ALL, ...request });
      const { releasedQuarantine, moved } = state.pending;
      expect([releasedQuarantine, after, values]).toEqual([rows, undefined, moved.length]);
      expect([...moved.value.subarray(0, firstValues.length)]).toEqual(firstValues);
    });
  });

  it('is requeued only once per row before the next commit', () => {
    withQuarantine([2, 3], (statements, state) => {
      expect(requeue(statements, state, ALL).values).toBe(5);
      expect(requeue(statements, state, ALL).values).toBe(0);
    });
  });

  it('is requeued completely across several steps', () => {
    withQuarantine(Array(1_200).fill(1), (statements, state) => {
      let values = 0;
      let steps = 0;
      for (let after: number | undefined = 0; after !== undefined; steps++) {
        const step = requeue(statements, state, { ...ALL, after });
        values += step.values;
        ({ after } = step);
      }
      expect([values, steps]).toEqual([800, 3]);
    });
  });

  it('retains rows with unreadable values and lists them as damaged', () => {
    withQuarantine([2, 3], (statements, state, database) => {
      database.exec("UPDATE quarantine SET packed = x'0011223344556677' WHERE id = 1");
      expect(requeue(statements, state, ALL)).toEqual({ values: 3, after: undefined });
      expect(state.pending.releasedQuarantine).toEqual([2]);
      const [row] = showQuarantine(statements, { after: 0, limit: 1 });
      expect(row).toMatchObject({ count: 2, value: [], damaged: true });
    });
  });

  it('can be searched by series in steps', () => {
    withQuarantine(Array(9_000).fill(1), (statements) => {
      const ids: number[] = [];
      let steps = 0;
      for (let after: number | undefined = 0; after !== undefined; steps++) {
        const step = searchQuarantine(statements, { after, series: [2] });
        ids.push(...step.rows.map(({ id }) => id));
        ({ after } = step);
      }
      expect(ids).toEqual(Array.from({ length: 3_000 }, (_, i) => 3 * i + 2));
      expect(searchQuarantine(statements, { after: 5_000, series: [] })).toEqual({ rows: [], after: undefined });
      expect(steps).toBeLessThan(9_000 / 200);
    });
  });

  it('is listed in pages with the first values of each row', () => {
    withQuarantine([7, 2, 1], (statements) => {
      const rows = showQuarantine(statements, { after: 0, limit: 9 });
      expect(rows.map(({ id, count, value }) => [id, count, value])).toEqual([
        [1, 7, [1, 2, 3, 4, 5]],
        [2, 2, [8, 9]],
        [3, 1, [10]],
      ]);
      expect(rows[1]).toMatchObject({ series: 2, status: 401, message: 'no', atMs: 1, damaged: false });
      expect(showQuarantine(statements, { after: 1, limit: 1 })).toEqual([rows[1]]);
    });
  });
});
