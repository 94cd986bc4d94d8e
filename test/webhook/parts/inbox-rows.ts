import { type Database, openDatabase } from '../../../src/base/database.ts';
import { Inbox } from '../../../src/webhook/inbox.ts';
import type { InboxLimits } from '../../../src/webhook/inbox-limits.ts';
import type { ArrivedEvent } from '../../../src/webhook/received-event.ts';
import { ManualClock } from '../../doubles/manual-clock.ts';

type Row = Record<string, unknown>;
/** By table, each row as the file has it; bytes as their hexadecimal digits. */
export type Rows = Record<string, Row[]>;
/** What a call has changed: of the tables that it touched, the rows that are gone, and those that have come. */
export type Change = Record<string, { gone?: Row[]; come?: Row[] }>;

/** All rows of all tables of a database. Checksums are left out unless asked for. */
function everyRow(database: Database, withSums = false): Rows {
  const tables = database
    .prepare<[], string>(`SELECT name FROM sqlite_master WHERE type = 'table' ORDER BY name`)
    .pluck()
    .all();
  const rowsOf = (table: string) => database.prepare<[], Row>(`SELECT * FROM ${table}`).all();
  return Object.fromEntries(tables.map((table) => [table, rowsOf(table).map((row) => readable(row, withSums))]));
}

function readable({ sum, ...row }: Row, withSums: boolean): Row {
  const hex = (value: unknown) => (value instanceof Uint8Array ? Buffer.from(value).toString('hex') : value);
  const columns = Object.entries(row).map(([name, value]) => [name, hex(value)]);
  return { ...Object.fromEntries(columns), ...(withSums && sum !== undefined ? { sum } : {}) };
}

/** An inbox in a file, and what each call of it changes there. */
export class InboxFile {
  readonly clock = new ManualClock();
  readonly #path: string;
  database!: Database;
  inbox!: Inbox;

  constructor(path: string) {
    this.#path = path;
  }

  open(limits: Partial<InboxLimits> = {}, boot = 'boot-1'): this {
    this.database = openDatabase(this.#path);
    this.inbox = Inbox.open(this.database, this.clock, boot, limits);
    return this;
  }

  reopen(limits: Partial<InboxLimits> = {}, boot = 'boot-1'): this {
    this.database.close();
    return this.open(limits, boot);
  }

  rows(): Rows {
    return everyRow(this.database);
  }

  /** What `call` changes of all rows of all tables; nothing but that stands there. */
  changeBy(call: () => unknown): Change {
    const before = this.rows();
    call();
    return changeBetween(before, this.rows());
  }
}

function changeBetween(before: Rows, after: Rows): Change {
  const change: Change = {};
  for (const [table, rows] of Object.entries(after)) {
    const had = before[table] ?? [];
    const without = (all: Row[], others: Row[]) => {
      const texts = new Set(others.map((row) => JSON.stringify(row)));
      return all.filter((row) => !texts.has(JSON.stringify(row)));
    };
    const [gone, come] = [without(had, rows), without(rows, had)];
    if (gone.length + come.length > 0)
      change[table] = { ...(gone.length > 0 ? { gone } : {}), ...(come.length > 0 ? { come } : {}) };
  }
  return change;
}

/** The twelve bytes by which event `n` is known, and as the rows show them. */
export const name = (n: number) => new Uint8Array(12).fill(n).fill(n >> 8, 0, 1);
export const shown = (n: number) => Buffer.from(name(n)).toString('hex');

/** Event `n`: it says when it occurred, came at 7 and costs 120 bytes, unless told. */
export function arrived(n: number, more: Partial<ArrivedEvent> = {}): ArrivedEvent {
  return {
    identity: name(n),
    eventType: 'asset_updated',
    occurredAtMs: 5,
    receivedAtMs: 7,
    payload: Buffer.from('{"n":1}'),
    unrecognised: false,
    ...more,
  };
}

/** Its row once it is taken in as the `id`th. */
export function eventRow(id: number, more: Row = {}): Row {
  return {
    id,
    event_type: 'asset_updated',
    occurred_ms: 5,
    received_ms: 7,
    age_ms: 0,
    identity: shown(id),
    unrecognised: 0,
    state: 'received',
    attempts: 0,
    retry_age_ms: null,
    replayed: 0,
    bytes: 120,
    payload: Buffer.from('{"n":1}').toString('hex'),
    ...more,
  };
}

export const ageNote = (ageMs: number, monotonicMs: number, boot = 'boot-1'): Row => ({
  name: 'age',
  value: JSON.stringify({ ageMs, boot, monotonicMs }),
});
