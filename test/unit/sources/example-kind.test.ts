import { mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterEach, beforeEach, describe, expect, it } from 'vitest';
import { TagSources } from '../../../src/agent/tag-sources.ts';
import { type Logger, silentLogger } from '../../../src/base/logger.ts';
import { Brokers } from '../../../src/broker/brokers.ts';
import { STATUS_FLAGS } from '../../../src/buffer/format/value-columns.ts';
import { sourcesTable, testedTable } from '../../../src/commands/sources/report-text.ts';
import { checkConfiguration, readTagsLeniently } from '../../../src/config/configuration.ts';
import { problemLine } from '../../../src/config/problem.ts';
import { findings } from '../../../src/ops/findings.ts';
import { SOURCE_KINDS } from '../../../src/sources/kinds.ts';
import type { SourceKind } from '../../../src/sources/source-kind.ts';
import { ENOUGH, makeFolder } from '../config/folder.ts';
import { COUNTER } from './example-kind/counter-kind.ts';
import { makeIntakeBench, until } from './sink-double.ts';

const ENV = {
  'agent.env': Object.entries(ENOUGH)
    .map(([name, value]) => `${name}=${value}\n`)
    .join(''),
};
const TAGS = `sources:
  lamp: { counter: 10 }
tags:
  T-1:
    asset: 881
    values:
      a: { from: lamp, step: 2, scale: 0.5 }
`;

let folder: string;
beforeEach(() => {
  folder = mkdtempSync(join(tmpdir(), 'tagferry-kind-'));
});
afterEach(() => rmSync(folder, { recursive: true }));

function runningWith(text: string, kind = COUNTER as SourceKind) {
  writeFileSync(join(folder, 'tags.yaml'), text);
  const kinds = [...SOURCE_KINDS, kind];
  const tags = readTagsLeniently({ directory: folder, environment: {}, kinds });
  const bench = makeIntakeBench(tags.tags);
  const { clock, sink, stamps, intake } = bench;
  const events: string[] = [];
  const log = silentLogger();
  for (const level of ['warn', 'info'] as const)
    log[level] = ((fields: { event: string }) => events.push(fields.event)) as Logger['warn'];
  const sources: TagSources = new TagSources({
    kinds,
    stateDir: folder,
    tags,
    valuesPath: '/v1/assets/{asset}/values',
    store: { notes: async () => [] },
    intake,
    gate: { committer: sink, stamps },
    brokers: new Brokers({ clientId: (name) => name, clock, logger: log }),
    retry: () => void sources.apply(() => true),
    clock,
    log,
  });
  const reload = async (changed: string) => {
    writeFileSync(join(folder, 'tags.yaml'), changed);
    const read = readTagsLeniently({ directory: folder, environment: {}, kinds });
    sources.setTags(read, '/v1/assets/{asset}/values');
    await sources.apply(() => true);
  };
  return { ...bench, sources, events, reload };
}

const table = (sources: TagSources) => sourcesTable(sources.reports(), Number.POSITIVE_INFINITY, (text) => text);

describe('example source kind of CONTRIBUTING.md', () => {
  it('is checked with its own schema and rules', () => {
    const files = { 'tags.yaml': TAGS.replace('{ counter: 10 }', '{ counter: ten }'), ...ENV };
    const directory = makeFolder(files);
    const kinds = [...SOURCE_KINDS, COUNTER as SourceKind];
    const linesOf = () =>
      checkConfiguration({ directory, environment: {}, kinds, actions: [] }).problems.map(problemLine);
    expect(linesOf()).toEqual([
      expect.stringMatching(/tags\.yaml:2:20: "ten" is not a number, use a value such as 10$/),
    ]);
    writeFileSync(join(directory, 'tags.yaml'), TAGS.replace('step: 2', 'step: 14'));
    expect(linesOf()).toEqual([expect.stringMatching(/tags\.yaml:7:\d+: step 14 is a multiple of seven, use another/)]);
  });

  it('is polled, scaled, stored and listed', async () => {
    const { sources, clock, sink } = runningWith(TAGS);
    await sources.apply(() => true);
    await clock.advance(2_400);
    expect(sink.stored.map(({ value }) => value)).toEqual([5, 6, 7]);
    expect(table(sources)).toMatch(/^lamp +counter +connected +2 s +0 s ago +1 +0 +0/m);
    await sources.close();
  });

  it('is tested beside the running source without storing a value', async () => {
    const { sources, clock, sink } = runningWith(TAGS);
    await sources.apply(() => true);
    await clock.advance(5_500);
    const stored = sink.stored.length;
    const tested = await sources.test(['lamp'], 10_000, new AbortController().signal);
    expect(tested).toMatchObject([{ tag: 'T-1', key: 'a', address: 'from 10 by 2', raw: 10, value: 5, problem: null }]);
    expect(testedTable(tested, Number.POSITIVE_INFINITY, (text) => text)).toContain('1 of 1 value read');
    expect(sink.stored.length).toBe(stored);
    await sources.close();
  });

  it('does not affect other sources if it cannot be opened, and is opened again after a minute', async () => {
    let isBroken = true;
    const open: SourceKind['open'] = async (context) => {
      if (isBroken) throw new Error('the note is not readable');
      return COUNTER.open(context as never);
    };
    const others = '  play: { simulate: true }\ntags:\n  T-2: { asset: 882, values: { b: { from: play } } }\n';
    const { sources, clock, sink, events } = runningWith(TAGS.replace('tags:\n', others), {
      ...COUNTER,
      open,
    } as never);
    await sources.apply(() => true);
    await clock.advance(500);
    expect([sink.stored.length, events]).toEqual([1, ['source.open_failed']]);
    const caller = new AbortController();
    const tested = await sources.test(['lamp'], 10_000, caller.signal);
    expect(tested).toMatchObject([{ tag: 'T-1', value: null, problem: 'the note is not readable' }]);
    // Ends nothing, because the test is complete.
    caller.abort();
    expect(findings({ sources: sources.reports() })).toMatchObject([
      {
        event: 'source.disconnected',
        subject: 'counter source lamp',
        sentence: expect.stringContaining('the note is'),
      },
    ]);
    for (let minute = 0; minute < 6; minute++) await clock.advance(60_000);
    expect(events).toEqual(Array(3).fill('source.open_failed'));
    isBroken = false;
    await clock.advance(60_000);
    await until(() => findings({ sources: sources.reports() }).length === 0);
    expect(events).toEqual([...Array(3).fill('source.open_failed'), 'source.open_failed_over']);
    await sources.close();
  });
});

describe('source with values changed by a reload', () => {
  const VALUES = TAGS.replace('scale: 0.5 }', 'range: [0, 11] }\n      b: { from: lamp, step: 3 }');

  it('keeps its counters and warnings, but not the value states of another device', async () => {
    const { sources, clock, reload } = runningWith(VALUES);
    await sources.apply(() => true);
    await clock.advance(25_400);
    const [before] = sources.reports();
    expect(before).toMatchObject({ stored: 27, errors: 25, rejected: { count: 25 }, missing: null });
    await reload(VALUES.replace('step: 3', 'step: 4'));
    const [after] = sources.reports();
    expect(after).toMatchObject({ stored: 29, errors: 25, rejected: before!.rejected, last_value_seconds_ago: 0 });
    await reload(VALUES.replace('counter: 10', 'counter: 20').replace('step: 3', 'step: 4'));
    await clock.advance(21_000);
    const [replaced] = sources.reports();
    expect(replaced).toMatchObject({ missing: { first: [{ name: 'T-1 a' }] } });
    expect(replaced!.errors).toBeGreaterThan(25);
    await sources.close();
  });

  it('sends its latest value once with the status bad if its new device fails from the start', async () => {
    const text = TAGS.replace('scale: 0.5', 'range: [0, 11], on_failure: bad');
    const { sources, clock, reload, sink } = runningWith(text);
    await sources.apply(() => true);
    await clock.advance(500);
    for (const counter of [20, 30]) {
      await reload(text.replace('counter: 10', `counter: ${counter}`));
      await clock.advance(5_000);
    }
    expect(sink.stored.map(({ value, status }) => [value, status])).toEqual([
      [10, 0],
      [10, STATUS_FLAGS.bad],
    ]);
    await sources.close();
  });
});
