import { execFile } from 'node:child_process';
import { mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterEach, beforeEach, describe, expect, it } from 'vitest';
import type { BufferFlow } from '../../../src/agent/buffer-flow.ts';
import { systemClock } from '../../../src/base/clock.ts';
import { silentLogger } from '../../../src/base/logger.ts';
import type { Batch } from '../../../src/buffer/client/lanes.ts';
import { ValueColumns } from '../../../src/buffer/format/value-columns.ts';
import { bufferRoutes } from '../../../src/control/buffer-routes.ts';
import { ControlServer } from '../../../src/control/control-server.ts';
import { Intake } from '../../../src/sources/intake/intake.ts';
import { MAIN } from '../../built-agent.ts';
import { COMPILED_CODE } from '../../host/made-once.ts';
import { commitColumns } from '../../unit/doubles/commit-columns.ts';
import { openFlow } from '../../unit/doubles/open-flow.ts';
import { tagOf } from '../../unit/sources/sink-double.ts';

const TAGS = new Map([
  [
    'FT-101',
    tagOf('FT-101', 881, [
      { key: 'flow', group: 'process', unit: { id: 12 } },
      { key: 'temperature', unit: { code: 'degree_celsius' } },
    ]),
  ],
]);
const TAGS_YAML = `tags:
  FT-101:
    asset: 881
    values:
      flow: { unit: 12, group: process }
      temperature: { unit: { code: degree_celsius } }
`;
const AT_MS = Date.UTC(2026, 10, 21);

let folder: string;
let flow: BufferFlow | undefined;
let control: ControlServer | undefined;

beforeEach(() => {
  folder = mkdtempSync(join(tmpdir(), 'tagferry-verbs-'));
  writeFileSync(join(folder, 'tags.yaml'), TAGS_YAML);
});
afterEach(async () => {
  await control?.stop();
  await flow?.stop();
  control = undefined;
  flow = undefined;
  rmSync(folder, { recursive: true, force: true });
});

async function open(): Promise<BufferFlow> {
  flow = await openFlow(join(folder, 'state'), {}, { onDeath: () => {} });
  return flow;
}

async function fill(opened: BufferFlow): Promise<void> {
  const columns = new ValueColumns();
  const flowSeries = opened.catalogue.idOf(881, 'flow', 'process', { id: 12 });
  const temperature = opened.catalogue.idOf(881, 'temperature', undefined, { code: 'degree_celsius' });
  const other = opened.catalogue.idOf(77, 'level', undefined, undefined);
  for (let i = 0; i < 100; i++) columns.add(flowSeries, AT_MS + i * 1000, 20 + i / 10, 1);
  for (let i = 0; i < 50; i++) columns.add(temperature, AT_MS + i * 1000, -0, 0);
  for (let i = 0; i < 10; i++) columns.add(other, AT_MS + i * 1000, 1e-7 * i, 3);
  await commitColumns(opened.committer, columns);
}

/** Runs with a control socket, or with a closed folder as after `systemctl stop`. */
async function arrange(daemon: boolean, prepare?: (opened: BufferFlow) => Promise<void>): Promise<void> {
  const opened = await open();
  await fill(opened);
  await prepare?.(opened);
  if (!daemon) {
    await opened.stop();
    flow = undefined;
    return;
  }
  const intake = new Intake({
    catalogue: opened.catalogue,
    tags: TAGS,
    committer: opened.committer,
    stamps: opened.stamps,
    clock: systemClock,
    log: silentLogger(),
  });
  const path = join(folder, 'state', 'control.sock');
  const routes = bufferRoutes({ flow: opened, tags: () => TAGS, intake, clock: systemClock });
  control = new ControlServer(routes, { path, clock: systemClock, log: silentLogger() });
  await control.start();
}

interface Ran {
  code: number;
  stdout: string;
  stderr: string;
}

function tagferry(...args: string[]): Promise<Ran> {
  return new Promise((resolve) => {
    const child = execFile(
      process.execPath,
      [MAIN, 'buffer', ...args, '--config', folder],
      {
        env: { ...COMPILED_CODE, PATH: process.env.PATH, STATE_DIR: join(folder, 'state') },
        maxBuffer: 64 * 1024 * 1024,
      },
      (error, stdout, stderr) => resolve({ code: error ? Number(error.code) : 0, stdout, stderr }),
    );
    child.stdin?.end();
  });
}

async function listed(): Promise<Record<string, unknown>[]> {
  const { stdout, code, stderr } = await tagferry('ls', '--json');
  expect(stderr).toBe('');
  expect(code).toBe(0);
  return JSON.parse(stdout) as Record<string, unknown>[];
}

const valuesOf = (rows: Record<string, unknown>[]) =>
  rows.map((row) => `${row.tag ?? row.asset} ${row.key} ${row.values}`).sort();

const bodyOf = (batch: Batch) => JSON.parse(new TextDecoder().decode(batch.body)) as { values: { key: string }[] };

describe.each([
  ['a running agent', true],
  ['a stopped agent', false],
])('tagferry buffer with %s', (_name, daemon) => {
  it('lists values by tag, or by asset if there is no tag', async () => {
    await arrange(daemon);
    const rows = await listed();
    expect(valuesOf(rows)).toEqual(['77 level 10', 'FT-101 flow 100', 'FT-101 temperature 50']);
    expect(rows.find((row) => row.key === 'flow')).toMatchObject({
      from: '2026-11-21T00:00:00.000Z',
      to: '2026-11-21T00:01:39.000Z',
      held: false,
      quarantined: 0,
    });
    const { stdout } = await tagferry('ls');
    expect(stdout).toMatch(/^FT-101 process\/flow\s+100/m);
    expect(stdout).toMatch(/^asset 77\/level\s+10/m);
  });

  it('exports CSV that can be imported bit for bit', async () => {
    await arrange(daemon);
    const file = join(folder, 'out.csv');
    expect((await tagferry('export', '--output', file)).code).toBe(0);
    const before = readFileSync(file, 'utf8');
    expect(before.split('\n').length).toBe(162);
    expect((await tagferry('purge', '--all', '--yes')).stdout).toContain('Deleted 160 values');
    expect(await listed()).toEqual([]);
    const imported = await tagferry('import', file, '--json');
    expect(JSON.parse(imported.stdout)).toEqual({ values: 160, problems: [] });
    const { stdout: after } = await tagferry('export', '--format', 'csv');
    expect(after.split('\n').sort()).toEqual(before.split('\n').sort());
    const { stdout: lines } = await tagferry('export', '--format', 'ndjson', '--tag', 'FT-101', '--key', 'temperature');
    const parsed = lines
      .trim()
      .split('\n')
      .map((line) => JSON.parse(line) as Record<string, unknown>);
    expect(parsed.length).toBe(50);
    expect(Object.is(parsed[0]?.value, -0)).toBe(true);
    expect(parsed[0]).toMatchObject({ tag: 'FT-101', asset: 881, unit: { code: 'degree_celsius' } });
  });

  it('exports a JSON array with --json and rejects other formats', async () => {
    await arrange(daemon);
    const { stdout, code } = await tagferry('export', '--json', '--tag', 'FT-101');
    expect(code).toBe(0);
    const values = JSON.parse(stdout) as Record<string, unknown>[];
    expect(values.length).toBe(150);
    expect(values[0]).toMatchObject({ tag: 'FT-101', asset: 881 });
    expect((await tagferry('export', '--json', '--key', 'nothing')).stdout).toBe('[]\n');
    const both = await tagferry('export', '--json', '--format', 'csv');
    expect([both.code, both.stdout]).toEqual([2, '']);
    expect(both.stderr).toContain('are mutually exclusive');
  });

  it('reports an unwritable file before exporting values', async () => {
    await arrange(daemon);
    const { code, stderr } = await tagferry('export', '--output', join(folder, 'nowhere', 'out.csv'));
    expect(code).toBe(1);
    expect(stderr).toBe(
      `tagferry: cannot write to ${join(folder, 'nowhere', 'out.csv')} (ENOENT)\nCreate its folder, or correct the path.\n`,
    );
    expect((await tagferry('export', '--output', folder)).stderr).toContain('Specify a file, not a folder.');
    // An existing file is not overwritten if the arguments are wrong.
    const file = join(folder, 'kept.csv');
    writeFileSync(file, 'kept');
    expect((await tagferry('export', '--tag', 'FT-999', '--output', file)).code).not.toBe(0);
    expect(readFileSync(file, 'utf8')).toBe('kept');
  });

  it('reports invalid CSV lines and stores nothing', async () => {
    await arrange(daemon);
    const file = join(folder, 'in.csv');
    const good = 'FT-101,flow,1,2026-11-21T00:00:00Z\n'.repeat(6000);
    writeFileSync(file, `tag,key,value,timestamp\n${good}FT-101,flaw,1,\n"FT-101","fl\now",1,\nFT-101,f,1,\n`);
    const { code, stderr } = await tagferry('import', file);
    expect(code).toBe(1);
    expect(stderr).toContain(`${file}:6002: key the tag "FT-101" has no key "flaw"`);
    // A line feed within quotes is part of the value and counts as a line.
    expect(stderr).toContain(`${file}:6003: key the tag "FT-101" has no key "fl\\now"`);
    expect(stderr).toContain(`${file}:6005: key`);
    expect(stderr).toContain('Nothing was imported.');
    expect(valuesOf(await listed())).toContain('FT-101 flow 100');
  });

  it('purges by tag and age after confirmation', async () => {
    await arrange(daemon);
    const refused = await tagferry('purge', '--all');
    expect(refused.code).toBe(2);
    expect(refused.stderr).toContain('--yes');
    expect((await tagferry('purge', '--yes')).code).toBe(2);
    expect((await tagferry('purge', '--tag', 'FT-102', '--yes')).stderr).toContain('Did you mean "FT-101"?');
    await tagferry('purge', '--tag', 'FT-101', '--key', 'temperature', '--yes');
    const { stdout } = await tagferry('purge', '--older-than', '2026-11-21T00:00:05Z', '--yes', '--json');
    expect(JSON.parse(stdout)).toEqual({ purged: 10 });
    expect(valuesOf(await listed())).toEqual(['77 level 5', 'FT-101 flow 95']);
  });

  it('shows quarantined values with the platform’s message, and requeues them', async () => {
    await arrange(daemon, async (opened) => {
      const batch = await opened.outgoing.take({ asset: 77, lane: 'live', maxValues: 3, maxBytes: 10_000 });
      await batch!.quarantine(batch!.whole, { status: 422, message: 'unit\u001b[31m unknown' });
      await opened.committer.flush();
    });
    const { stdout } = await tagferry('quarantine', '--json');
    expect(JSON.parse(stdout)).toMatchObject([{ asset: 77, key: 'level', values: 3, status: 422 }]);
    expect((await tagferry('quarantine')).stdout).toMatch(/asset 77\/level .* 422 +unit\\u001b\[31m unknown/);
    expect((await listed()).find((row) => row.asset === 77)).toMatchObject({ values: 7, quarantined: 3 });
    expect((await tagferry('requeue')).stdout).toContain('3 values');
    expect((await listed()).find((row) => row.asset === 77)).toMatchObject({ values: 10, quarantined: 0 });
  });

  it('moves values that were stored under the wrong asset', async () => {
    await arrange(daemon);
    const { stdout } = await tagferry(
      ...['retarget', '--from-asset', '881', '--to-asset', '882', '--force', '--yes', '--json'],
    );
    expect(JSON.parse(stdout)).toEqual({ retargeted: 150, under_way: 0 });
    expect(valuesOf(await listed())).toEqual(['77 level 10', '882 flow 100', '882 temperature 50']);
    const { stdout: csv } = await tagferry('export', '--asset', '882', '--key', 'flow');
    expect(csv.split('\n')[1]).toBe(',882,12,process,flow,20,2026-11-21T00:00:00.000Z,good');
  });
});

describe('tagferry buffer during posts', () => {
  it('skips values in flight and reports this', async () => {
    await arrange(true);
    const batch = await flow!.outgoing.take({ asset: 77, lane: 'live', maxValues: 4, maxBytes: 10_000 });
    expect(bodyOf(batch!.whole).values[0]?.key).toBe('level');
    const { stdout } = await tagferry('purge', '--asset', '77', '--yes', '--json');
    expect(JSON.parse(stdout)).toEqual({ purged: 6 });
    expect((await listed()).find((row) => row.asset === 77)).toMatchObject({ values: 4, under_way: 4 });
    await batch!.settle(batch!.whole);
    expect((await listed()).find((row) => row.asset === 77)).toBeUndefined();
  });
});
