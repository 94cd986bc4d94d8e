import { existsSync, mkdtempSync, readdirSync, readFileSync, rmSync, truncateSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import Database from 'better-sqlite3';
import { afterEach, beforeEach, describe, expect, it } from 'vitest';
import type { BufferFlow } from '../../../src/agent/buffer-flow.ts';
import { ValueColumns } from '../../../src/buffer/format/value-columns.ts';
import { type ArrivedEvent, readEvent } from '../../../src/webhook/received-event.ts';
import { WATERMARK_NOTE } from '../../../src/webhook/watermark.ts';
import { commitColumns } from '../../unit/doubles/commit-columns.ts';
import { openFlow, telling } from '../../unit/doubles/open-flow.ts';
import { seeded } from '../../unit/sources/sink-double.ts';

const FIXTURE = readFileSync(join(import.meta.dirname, '../../fixtures/events/threshold_reached.json'), 'utf8');
/** Far more than the page cache can hold. */
const EVENTS = 6_000;

let folder: string;
let flow: BufferFlow | undefined;
let told: Record<string, unknown>[] = [];

beforeEach(() => {
  folder = mkdtempSync(join(tmpdir(), 'tagferry-inbox-'));
  told = [];
});
afterEach(async () => {
  await flow?.stop();
  flow = undefined;
  rmSync(folder, { recursive: true, force: true });
});

async function open(): Promise<BufferFlow> {
  flow = await openFlow(folder, {}, { log: telling((fields: Record<string, unknown>) => told.push(fields)) });
  return flow;
}

function threshold(value: number): ArrivedEvent {
  const payload = JSON.parse(FIXTURE);
  payload.content.data.value = value;
  return readEvent(new TextEncoder().encode(JSON.stringify(payload)), 1);
}

/** A reopened inbox of several megabytes, with most pages not in memory. */
async function fill(): Promise<BufferFlow> {
  let opened = await open();
  const events = Array.from({ length: EVENTS }, (_, i) => threshold(i));
  for (let i = 0; i < EVENTS; i += 200) {
    const outcomes = await opened.inbox.insertMany(events.slice(i, i + 200));
    expect(new Set(outcomes)).toEqual(new Set(['new']));
  }
  await opened.inbox.setNote(WATERMARK_NOTE, '{"scope":"1","upToMs":5}');
  await opened.inbox.finish(1, 'done');
  await opened.stop();
  opened = await open();
  return opened;
}

function damage(table: string, share: [number, number]): void {
  const path = join(folder, 'inbox.db');
  const reader = new Database(path, { readonly: true });
  const pages = reader
    .prepare("SELECT pageno FROM dbstat WHERE name = ? AND pagetype = 'leaf' ORDER BY pageno")
    .pluck()
    .all(table) as number[];
  reader.close();
  expect(pages.length).toBeGreaterThan(20);
  const bytes = readFileSync(path);
  const random = seeded(9);
  for (const page of pages.slice(pages.length * share[0], pages.length * share[1])) {
    for (let at = (page - 1) * 1024; at < page * 1024; at++) bytes[at] = Math.floor(random() * 256);
  }
  writeFileSync(path, bytes);
}

const aside = () => readdirSync(folder).filter((name) => /^inbox\.db\.corrupt-\d+T\d+Z$/.test(name));

/** Reads the inbox from newest to oldest, as `events ls` does. */
async function readAll(opened: BufferFlow): Promise<number[]> {
  const ids: number[] = [];
  for (let beforeId: number | undefined; ; beforeId = ids.at(-1)) {
    const page = await opened.inbox.list({ limit: 1_000, ...(beforeId === undefined ? {} : { beforeId }) });
    if (page.length === 0) return ids;
    ids.push(...page.map((event) => event.id));
  }
}

describe('corrupt inbox', () => {
  it('is set aside and replaced during operation, and known events are not processed again', async () => {
    const opened = await fill();
    damage('inbox_event', [0.4, 0.5]);
    await readAll(opened);
    const [said] = told.filter(({ event }) => event === 'store.corrupt');
    expect(said).toMatchObject({ store: join(folder, 'inbox.db'), rows: expect.any(Number) });
    expect(aside()).toHaveLength(1);
    expect(opened.setAside).toBe(1);

    // Without a restart, and over the same port as before.
    expect(await opened.inbox.insertMany([threshold(-1)])).toEqual(['new']);
    expect(await opened.inbox.insertMany([threshold(-1)])).toEqual(['seen']);
    // Most events were copied: those stored before and after the damaged part.
    const ids = await readAll(opened);
    expect(ids.length).toBeGreaterThan(EVENTS * 0.8);
    expect(Math.min(...ids)).toBe(1);
    expect(ids[0]).toBe(EVENTS + 1);
    expect((await opened.inbox.show(1))?.state).toBe('done');
    // The seen marks are stored separately: even a lost event does not run a second time, and all events are listed
    // again.
    expect(await opened.inbox.insertMany([threshold(2_700), threshold(5_999)])).toEqual(['seen', 'seen']);
    expect(await opened.inbox.note(WATERMARK_NOTE)).toBeUndefined();
    expect(told.filter(({ event }) => event === 'store.corrupt')).toHaveLength(1);
    // The buffer in the same folder is unaffected.
    const columns = new ValueColumns();
    columns.add(opened.catalogue.idOf(1, 'k', undefined, undefined), 1, 1, 0);
    await commitColumns(opened.committer, columns);
    expect(existsSync(join(folder, 'buffer.db'))).toBe(true);
  });

  it('causes no number to be reused, even if nothing is readable', async () => {
    const opened = await fill();
    const path = join(folder, 'inbox.db');
    const size = readFileSync(path).length;
    truncateSync(path, 1024);
    writeFileSync(path, Buffer.alloc(size, 7));
    // The page cache contents are recovered again.
    await expect.poll(() => readAll(opened).then((ids) => ids.length, String), { timeout: 30_000 }).toBe(0);
    expect(aside()).toHaveLength(1);
    await opened.inbox.insertMany([threshold(-5)]);
    expect((await readAll(opened))[0]).toBe(EVENTS + 1);
    // The holds are stored in the same file.
    expect(await opened.access.load()).toMatchObject({ holds: [] });
  });

  it('is replaced at startup, and its readable rows are restored', async () => {
    let opened = await fill();
    await opened.stop();
    damage('inbox_seen', [0.2, 0.6]);
    opened = await open();
    // Corrupt pages are detected when they are read.
    const all = Array.from({ length: 20 }, (_, i) => threshold(i * 300));
    for (const event of all) await opened.inbox.insertMany([event]);
    expect(told.some(({ event }) => event === 'store.corrupt')).toBe(true);
    expect((await readAll(opened)).length).toBeGreaterThanOrEqual(EVENTS);
  });
});
