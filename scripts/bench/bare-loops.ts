/**
 * Baselines for the buffer: the simplest code for each design that stores the same values, without lanes, cursors,
 * limits or threads.
 */

import { openDatabase } from '../../src/base/database.ts';
import { BodyWriter } from '../../src/buffer/batches/body-writer.ts';
import { LogRowWriter } from '../../src/buffer/format/log-row.ts';
import { packSegment, unpackSegment } from '../../src/buffer/format/segment.ts';
import type { ValueColumns } from '../../src/buffer/format/value-columns.ts';
import { SERIES } from './plant.ts';

export interface Loop {
  commit(values: ValueColumns): void;
  /**
   * Drains all values in bodies of 1,000, passes each body to `post` and deletes the values. Returns the number of
   * values.
   */
  drain?(post: (body: Uint8Array) => Promise<void>): Promise<number>;
  close(): void;
}

const seriesOf = (id: number) => ({
  id,
  asset: 1 + Math.floor((id - 1) / 10),
  key: `k${(id - 1) % 10}`,
  group: undefined,
  unit: { id: 12 },
});

/** One log row per commit. */
export function bareLog(path: string): Loop {
  const database = openDatabase(path);
  database.exec('CREATE TABLE log (id INTEGER PRIMARY KEY, row BLOB NOT NULL)');
  const insert = database.prepare<[Uint8Array]>('INSERT INTO log (row) VALUES (?)');
  const writer = new LogRowWriter();
  let seq = 0;
  return {
    commit(values) {
      insert.run(writer.write({ run: 1, monotonicMs: 0, firstSeq: seq }, values, []));
      seq += values.length;
    },
    close: () => database.close(),
  };
}

/** One row per value. */
export function rowAValue(path: string): Loop {
  const database = openDatabase(path, { pageBytes: 4096 });
  database.exec('CREATE TABLE v (id INTEGER PRIMARY KEY, series INTEGER, t INTEGER, value REAL, status INTEGER)');
  const insert = database.prepare<[number, number, number, number]>(
    'INSERT INTO v (series, t, value, status) VALUES (?, ?, ?, ?)',
  );
  const head = database.prepare<[], { id: number; series: number; t: number; value: number }>(
    'SELECT id, series, t, value FROM v ORDER BY id LIMIT 1000',
  );
  const remove = database.prepare<[number]>('DELETE FROM v WHERE id <= ?');
  const commit = database.transaction((values: ValueColumns) => {
    for (let i = 0; i < values.length; i++) {
      insert.run(values.series[i]!, values.timeMs[i]!, values.value[i]!, values.flags[i]!);
    }
  });
  return {
    commit,
    async drain(post) {
      let count = 0;
      for (;;) {
        const rows = head.all();
        if (rows.length === 0) return count;
        const body = rows.map((row) => ({
          key: row.series,
          timestamp: new Date(row.t).toISOString(),
          value: row.value,
        }));
        await post(Buffer.from(JSON.stringify(body)));
        remove.run(rows[rows.length - 1]!.id);
        count += rows.length;
      }
    },
    close: () => database.close(),
  };
}

/** Segments of 1,000 values: unpack, build a body, post, delete. */
export function bareDrain(path: string): Loop {
  const database = openDatabase(path);
  database.exec('CREATE TABLE segment (id INTEGER PRIMARY KEY, series INTEGER, packed BLOB NOT NULL)');
  const insert = database.prepare<[number, Uint8Array]>('INSERT INTO segment (series, packed) VALUES (?, ?)');
  const remove = database.prepare<[number]>('DELETE FROM segment WHERE id = ?');
  const open = Array.from({ length: SERIES + 1 }, () => ({
    count: 0,
    timeMs: new Float64Array(1000),
    value: new Float64Array(1000),
    flags: new Uint8Array(1000),
  }));
  const flush = database.transaction((series: number[]) => {
    for (const id of series) {
      if (open[id]!.count > 0) insert.run(id, packSegment(open[id]!));
      open[id]!.count = 0;
    }
  });
  const body = new BodyWriter();
  return {
    commit(values) {
      const full: number[] = [];
      for (let i = 0; i < values.length; i++) {
        const segment = open[values.series[i]!]!;
        segment.timeMs[segment.count] = values.timeMs[i]!;
        segment.value[segment.count++] = values.value[i]!;
        if (segment.count === 1000) {
          full.push(values.series[i]!);
          flush(full.splice(0));
        }
      }
    },
    async drain(post) {
      flush(open.map((_, id) => id).slice(1));
      let count = 0;
      const gone: number[] = [];
      const settle = database.transaction(() => {
        for (const id of gone) remove.run(id);
      });
      const rows = database.prepare('SELECT id FROM segment ORDER BY id').pluck().all() as number[];
      const get = database.prepare<[number], { series: number; packed: Buffer }>(
        'SELECT series, packed FROM segment WHERE id = ?',
      );
      for (const id of rows) {
        const row = get.get(id)!;
        const values = unpackSegment(row.packed);
        body.begin(480_000);
        body.openKey(seriesOf(row.series));
        for (let i = 0; i < values.count; i++) body.point(values.timeMs[i]!, values.value[i]!, values.flags[i]!);
        body.closeKey();
        await post(body.end());
        count += values.count;
        gone.push(id);
        if (gone.length === 10) {
          settle();
          gone.length = 0;
        }
      }
      settle();
      return count;
    },
    close: () => database.close(),
  };
}
