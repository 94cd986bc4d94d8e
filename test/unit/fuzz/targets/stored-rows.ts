import { mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { crc32 } from 'node:zlib';
import Database from 'better-sqlite3';
import { codeOf, TagferryError } from '../../../../src/base/errors.ts';
import { readTarHeader, tarHeader } from '../../../../src/base/tar.ts';
import { LogRowWriter, peekLogRow, readLogRow } from '../../../../src/buffer/format/log-row.ts';
import { packSegment, unpackSegment } from '../../../../src/buffer/format/segment.ts';
import { packRanges, settledCount, unpackRanges } from '../../../../src/buffer/format/settled-ranges.ts';
import { ValueColumns } from '../../../../src/buffer/format/value-columns.ts';
import { SqlitePages } from '../../../../src/buffer/recovery/sqlite-pages.ts';
import { walLostCommits } from '../../../../src/buffer/recovery/wal-check.ts';
import { demand, demandSame, type FuzzTarget, refusing } from '../target.ts';

const isDamage = (error: unknown) => codeOf(error) === 'store.damaged';

/** Adds the valid checksum. Otherwise only the checksum would be tested. */
function sealed(bytes: Buffer): Buffer {
  const sum = Buffer.alloc(4);
  sum.writeUInt32LE(crc32(bytes));
  return Buffer.concat([sum, bytes]);
}

function columns(values: readonly [series: number, timeMs: number, value: number, flags: number][]): ValueColumns {
  const found = new ValueColumns();
  for (const value of values) found.add(...value);
  return found;
}

const HEAD = { run: 3, monotonicMs: 1_000, firstSeq: 12 };
const writer = new LogRowWriter();
const row = (...values: [number, number, number, number][]) =>
  Buffer.from(writer.write(HEAD, columns(values), [{ series: 1, firstSeq: 2, lastSeq: 9 }])).subarray(4);

/** Compares bits, because of -0 and NaN. */
function rowsOf({ length, series, timeMs, value, flags }: ValueColumns): unknown[] {
  return Array.from({ length }, (_, at) => [
    series[at],
    timeMs[at],
    Object.is(value[at], -0) ? '-0' : value[at],
    flags[at],
  ]);
}

const logRow: FuzzTarget = {
  name: 'log-row',
  seeds: [
    row(),
    row([1, 1e12, 20.37, 0], [1, 1e12 + 1, 20.4, 1]),
    row([7, 5, Math.PI, 4], [9, 4, -0, 3], [7, 6, 1e300, 0]),
  ],
  run(bytes) {
    peekLogRow(bytes);
    refusing(isDamage, () => readLogRow(bytes));
    const read = refusing(isDamage, () => readLogRow(sealed(bytes)));
    if (read === undefined) return;
    const { values, settled, ...head } = read;
    const whole = [head.run, head.monotonicMs, head.firstSeq, ...values.timeMs.subarray(0, values.length)];
    if (!whole.every((each) => Math.abs(each) <= 2 ** 50) || settled.some((run) => run.lastSeq > 2 ** 50)) return;
    const again = readLogRow(Buffer.from(writer.write(head, values, settled)));
    demandSame(
      'a row and what is written of it',
      [head, rowsOf(values), settled],
      [
        { run: again.run, monotonicMs: again.monotonicMs, firstSeq: again.firstSeq },
        rowsOf(again.values),
        again.settled,
      ],
    );
  },
};

const segmentOf = (values: readonly number[]) =>
  Buffer.from(
    packSegment({
      count: values.length,
      timeMs: Float64Array.from(values, (_, at) => 1e12 + at * 1_000),
      value: Float64Array.from(values),
      flags: Uint8Array.from(values, (_, at) => at & 3),
    }),
  ).subarray(4);

const segment: FuzzTarget = {
  name: 'segment',
  seeds: [
    segmentOf([1]),
    segmentOf([20.37, 20.4, 20.5, 21]),
    segmentOf([Math.PI, -0, 1e300]),
    segmentOf([1, 2, Math.E, 4, 5, 6]),
  ],
  run(bytes) {
    const read = refusing(isDamage, () => unpackSegment(sealed(bytes)));
    if (read === undefined) return;
    const plain = ({ count, timeMs, value, flags }: typeof read) =>
      Array.from({ length: count }, (_, at) => [timeMs[at], Object.is(value[at], -0) ? '-0' : value[at], flags[at]]);
    if (!read.timeMs.every((timeMs) => Math.abs(timeMs) <= 2 ** 48)) return;
    demandSame('a segment and what is packed of it', plain(unpackSegment(packSegment(read))), plain(read));
  },
};

const ranges: FuzzTarget = {
  name: 'settled-ranges',
  seeds: [Buffer.from(packRanges([0, 5])).subarray(4), Buffer.from(packRanges([0, 5, 7, 300])).subarray(4)],
  run(bytes) {
    const read = refusing(isDamage, () => unpackRanges(sealed(bytes)));
    if (read === undefined) return;
    settledCount(read);
    demandSame('ranges and what is packed of them', unpackRanges(packRanges(read)), read);
  },
};

/** Database with small pages and overflow rows, and its WAL. The file is the first two thirds of the input. */
function smallDatabase(): Buffer {
  const folder = mkdtempSync(join(tmpdir(), 'tagferry-fuzz-'));
  const path = join(folder, 'a.db');
  const database = new Database(path);
  database.pragma('page_size = 512');
  database.pragma('auto_vacuum = incremental');
  database.exec('CREATE TABLE log (id INTEGER PRIMARY KEY, row BLOB, name TEXT)');
  const insert = database.prepare('INSERT INTO log (row, name) VALUES (?, ?)');
  for (const length of [3, 40, 900]) insert.run(Buffer.alloc(length, 7), 'n'.repeat(length % 7));
  const bytes = database.serialize();
  database.close();
  rmSync(folder, { recursive: true });
  return bytes;
}

let folder: string | undefined;

const sqlitePages: FuzzTarget = {
  name: 'sqlite-pages',
  seeds: [smallDatabase()],
  run(bytes) {
    if (folder === undefined) {
      folder = mkdtempSync(join(tmpdir(), 'tagferry-fuzz-'));
      process.on('exit', () => rmSync(folder!, { recursive: true, force: true }));
    }
    const path = join(folder, 'fuzzed.db');
    const cut = Math.floor((bytes.length * 2) / 3);
    // The index of the WAL affects the result.
    writeFileSync(path, bytes);
    writeFileSync(`${path}-wal`, bytes.subarray(cut));
    writeFileSync(`${path}-shm`, bytes.subarray(0, 136));
    walLostCommits(path, 512);
    const pages = new SqlitePages(path, 512);
    try {
      let rows = 0;
      for (const found of pages.pages()) rows += found.length;
      demand(rows <= bytes.length, 'more rows than bytes');
    } finally {
      pages.close();
    }
  },
};

const stateFiles: FuzzTarget = {
  name: 'archive',
  seeds: [
    tarHeader({ name: 'config/agent.env', size: 12, mode: 0o600, atSeconds: 1_700_000_000, user: 'root' }),
    tarHeader({ name: 'state/buffer.db', size: 2 ** 34, mode: 0o600, atSeconds: 1_700_000_000 }),
  ],
  run(bytes) {
    const block = Buffer.from(bytes.subarray(0, 512));
    if (block.length > 264) {
      // Valid checksum, as for rows.
      block.write('        ', 148, 'latin1');
      const sum = block.reduce((total, byte) => total + byte, 0);
      block.write(`${sum.toString(8).padStart(6, '0')}\0 `, 148, 'latin1');
    }
    const header = refusing(
      (error) => error instanceof TagferryError,
      () => readTarHeader(block),
    );
    demand(header === undefined || (Number.isSafeInteger(header.size) && header.size >= 0), 'a file of no size');
  },
};

export const STORED_ROWS = [logRow, segment, ranges, sqlitePages, stateFiles];
