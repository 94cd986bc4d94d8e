/** Contents of buffer pages according to SQLite. The integer part identifies a value. */
import { readFileSync } from 'node:fs';
import Database from 'better-sqlite3';
import { readLogRow } from '../../../src/buffer/format/log-row.ts';
import { unpackSegment } from '../../../src/buffer/format/segment.ts';

export const PAGE = 1024;
/** Kind of page that the disk cannot read. */
export const SECTOR = 4096;

export const sectorOf = (page: number) => Math.floor(((page - 1) * PAGE) / SECTOR);

export interface PageMap {
  /** Numbers of the values that are on a page or require it. */
  numbers: Map<number, number[]>;
  /** Number and values of quarantine rows. */
  quarantine: Map<number, Map<number, number>>;
  /** One page per kind and some additional ones, by content. */
  kinds: Map<string, number>;
}

/** Requires a buffer without a WAL. */
export function mapPages(file: string): PageMap {
  const numbers = new Map<number, number[]>();
  const quarantine = new Map<number, Map<number, number>>();
  const kinds = new Map<string, number>();
  const database = new Database(file, { readonly: true });
  const note = (page: number, found: number[]) => numbers.set(page, [...(numbers.get(page) ?? []), ...found]);
  for (const table of [
    'log',
    'segment',
    'span',
    'span_gone',
    'segment_progress',
    'series',
    'run',
    'quarantine',
    'note',
  ]) {
    const column = { log: 'row', segment: 'packed', quarantine: 'packed' }[table];
    const ids = database.prepare(`SELECT rowid FROM ${table} ORDER BY rowid`);
    const rows = column ? (ids.pluck().all() as number[]) : [];
    const parts = database
      .prepare('SELECT path, pageno, pagetype, ncell FROM dbstat WHERE name = ? ORDER BY path')
      .all(table) as { path: string; pageno: number; pagetype: string; ncell: number }[];
    const valuesOf = (id: number): number[] => {
      const bytes = database.prepare(`SELECT ${column} FROM ${table} WHERE id = ?`).pluck().get(id) as Buffer;
      const values = table === 'log' ? readLogRow(bytes).values : unpackSegment(bytes);
      const count = 'length' in values ? values.length : values.count;
      return Array.from(values.value.subarray(0, count), Math.floor);
    };
    const firstRow = new Map<string, number>();
    let next = 0;
    for (const { path, pagetype, ncell } of parts) {
      if (pagetype !== 'leaf') continue;
      firstRow.set(path, next);
      next += ncell;
    }
    const ofKind = new Map<string, number[]>();
    for (const { path, pageno, pagetype, ncell } of parts) {
      const kind = path === '/' ? 'root' : pagetype;
      ofKind.set(kind, [...(ofKind.get(kind) ?? []), pageno]);
      if (!column || pagetype === 'internal') continue;
      const leaf = pagetype === 'leaf' ? path : path.slice(0, path.lastIndexOf('/') + 1);
      const from = firstRow.get(leaf)!;
      const cell = pagetype === 'leaf' ? undefined : Number.parseInt(path.slice(leaf.length), 16);
      const own = cell === undefined ? rows.slice(from, from + ncell) : [rows[from + cell]!];
      for (const id of own) {
        if (table !== 'quarantine') note(pageno, valuesOf(id));
        else quarantine.set(pageno, new Map([...(quarantine.get(pageno) ?? []), [id, valuesOf(id).length]]));
      }
    }
    for (const [kind, all] of ofKind) {
      kinds.set(`the first ${kind} page of ${table}`, all[0]!);
      if (all.length > 2) kinds.set(`a ${kind} page of ${table}`, all[all.length >> 1]!);
    }
  }
  kinds.set('the header', 1);
  kinds.set('the first pointer map', 2);
  const trunk = readFileSync(file).readUInt32BE(32);
  if (trunk > 0) kinds.set('the free list', trunk);
  database.close();
  return { numbers, quarantine, kinds };
}
