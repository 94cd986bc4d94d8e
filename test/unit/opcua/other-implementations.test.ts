import { mkdtempSync, readFileSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import type { Item } from '../../../src/opcua/protocol.ts';
import { type ReadServer, readServer } from './read-server.ts';
import { RecordedServer, type Recording } from './recorded-server.ts';

const item = (name: string, part: Partial<Item> = {}): Item => ({
  node: `nsu=urn:foreign:line;s=${name}`,
  samplingMs: 50,
  queueSize: 10,
  trigger: 'value',
  ...part,
});

/** Items that were read when the traffic was recorded. */
const ITEMS: readonly Item[] = [
  item('Flow'),
  item('Zones', { index: 1 }),
  item('Zones'),
  item('Run'),
  item('Mode'),
  item('Text'),
  item('Motor'),
  item('Motor', { member: 'Total' }),
  item('Motor', { member: 'High' }),
  item('Missing'),
  { ...item('Flow'), node: 'nsu=urn:foreign:missing;s=Flow' },
];

const ARRAY = { problem: 'the value is an array of 3 elements', hint: 'Set index: to a number from 0 to 2.' };

/** Traffic with servers that do not share the library of the client, recorded on 2026-11-25. */
describe.each([
  {
    name: 'open62541',
    members: ['Low', 'High'],
    total: null,
    high: 99,
    past: { values: 90, pages: 9 },
  },
  // Ignores IndexRange, and has types that the client does not know.
  {
    name: 'asyncua',
    members: ['Speed', 'Total'],
    total: 2 ** 32 + 9,
    high: null,
    past: { values: 20, pages: 1 },
  },
])('recorded $name server', ({ name, members, total, high, past }) => {
  let folder: string;
  let server: RecordedServer;
  let read: ReadServer;

  beforeAll(async () => {
    folder = mkdtempSync(join(tmpdir(), 'tagferry-recorded-'));
    const text = readFileSync(join(import.meta.dirname, `recorded/${name}.json`), 'utf8');
    server = new RecordedServer(JSON.parse(text) as Recording);
    read = await readServer(await server.start(), ITEMS, folder);
  });
  afterAll(() => {
    server.stop();
    rmSync(folder, { recursive: true, force: true });
  });

  it('returns numbers, texts, elements, enumerations and members of structures', () => {
    const first = ITEMS.map((_, at) => read.notified.find(([item]) => item === at)?.[1]);
    expect(first.slice(1)).toEqual([2, null, true, 1, 'hi', null, total, high, undefined, undefined]);
    expect(read.notified.every(([, raw, timeMs]) => raw === null || timeMs! > Date.UTC(2026, 10, 25))).toBe(true);
  });

  it('is reported with the reason for each unreadable value', () => {
    const detailOf = (at: number) => read.notified.find(([item]) => item === at)?.[4];
    expect([detailOf(2), detailOf(6)]).toEqual([
      ARRAY,
      { problem: 'the value is a structure', hint: `Set member: ${members.join(', ')}.` },
    ]);
    expect(read.rejected).toEqual([
      [10, 'the server does not have the namespace urn:foreign:missing'],
      [9, 'the server does not have this node (BadNodeIdUnknown)'],
    ]);
  });

  it('is scanned with namespace URIs, elements and members', () => {
    expect(
      read.found.map(({ node, index, member }) => [node.replace(/^nsu=urn:foreign:line;s=/, ''), index, member]),
    ).toEqual(
      expect.arrayContaining([
        ['Flow', undefined, undefined],
        ['Zones', 0, undefined],
        ['Zones', 2, undefined],
        ...members.map((member) => ['Motor', undefined, member]),
      ]),
    );
    expect(read.found.some(({ path }) => path === 'Line/Text')).toBe(false);
  });

  it('returns historical values page by page', () => {
    expect(read.history).toEqual([0]);
    expect([read.past.length, read.pages]).toEqual([past.values, past.pages]);
    const times = read.past.map(([, timeMs]) => timeMs!);
    expect(times).toEqual(times.toSorted((one, other) => one - other));
  });

  it('sends every change in order', () => {
    const flow = read.notified.filter(([item]) => item === 0).map(([, raw]) => Number(raw));
    expect(flow.length).toBeGreaterThanOrEqual(3);
    expect(flow).toEqual(flow.map((_, at) => flow[0]! + at));
  });
});
