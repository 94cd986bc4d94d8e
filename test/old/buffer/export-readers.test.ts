/** Concurrent exports, backups and compaction, with commands as processes on the control socket of an open buffer. */
import { type ChildProcessWithoutNullStreams, execFile, spawn } from 'node:child_process';
import { once } from 'node:events';
import { mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterEach, beforeEach, describe, expect, it } from 'vitest';
import type { BufferFlow } from '../../../src/agent/buffer-flow.ts';
import { storeOptions } from '../../../src/agent/pace.ts';
import { systemClock } from '../../../src/base/clock.ts';
import { silentLogger } from '../../../src/base/logger.ts';
import { ValueColumns } from '../../../src/buffer/format/value-columns.ts';
import { bufferRoutes } from '../../../src/control/buffer-routes.ts';
import { ControlServer } from '../../../src/control/control-server.ts';
import { Intake } from '../../../src/sources/intake/intake.ts';
import { MAIN } from '../../built-agent.ts';
import { COMPILED_CODE } from '../../host/made-once.ts';
import { commitColumns } from '../../unit/doubles/commit-columns.ts';
import { bufferSettings, openFlow } from '../../unit/doubles/open-flow.ts';

const SERIES = 200;
const FLUSHES = 32;
const VALUES_A_FLUSH = 20;
const VALUES = SERIES * FLUSHES * VALUES_A_FLUSH;

let folder: string;
let flow: BufferFlow;
let control: ControlServer;
let children: ChildProcessWithoutNullStreams[];

beforeEach(async () => {
  folder = mkdtempSync(join(tmpdir(), 'tagferry-readers-'));
  writeFileSync(join(folder, 'tags.yaml'), 'tags: {}\n');
  children = [];
  flow = await openFlow(join(folder, 'state'), { commitIntervalMs: 3_600_000, commitValues: 1e9 });
  const { catalogue, committer, stamps } = flow;
  const intake = new Intake({ catalogue, tags: new Map(), committer, stamps, clock: systemClock, log: silentLogger() });
  const path = join(folder, 'state', 'control.sock');
  const routes = bufferRoutes({ flow, tags: () => new Map(), intake, clock: systemClock });
  control = new ControlServer(routes, { path, clock: systemClock, log: silentLogger() });
  await control.start();
  await fill();
});

afterEach(async () => {
  for (const child of children) child.kill('SIGKILL');
  await control.stop();
  await flow.stop();
  rmSync(folder, { recursive: true, force: true });
});

/** A backlog of many small segments that is compacted once no reader prevents it. */
async function fill(): Promise<void> {
  const reader = await flow.operator.beginExport({});
  await flow.values.configure({ ...storeOptions(bufferSettings(join(folder, 'state'))), flushValues: 1 });
  for (let flush = 0; flush < FLUSHES; flush++) {
    const columns = new ValueColumns();
    for (let series = 0; series < SERIES; series++) {
      const id = flow.catalogue.idOf(1 + series, 'flow', undefined, undefined);
      for (let i = 0; i < VALUES_A_FLUSH; i++) {
        columns.add(id, Date.UTC(2026, 10, 21) + (flush * VALUES_A_FLUSH + i) * 1000, flush * VALUES_A_FLUSH + i, 1);
      }
    }
    const stored = commitColumns(flow.committer, columns);
    await flow.committer.flush();
    await stored;
    await maintain();
  }
  await flow.operator.endExport(reader);
}

/** Runs all due background work. Returns the number of spans. */
async function maintain(): Promise<number> {
  for (;;) {
    const facts = await flow.values.maintain({ monotonicMs: systemClock.monotonicMs() });
    flow.committer.update(facts);
    if (!facts.maintenanceDue && !facts.dirty) return facts.spans;
    await flow.committer.flush();
  }
}

const environment = () => ({ ...COMPILED_CODE, PATH: process.env.PATH, STATE_DIR: join(folder, 'state') });

/** `buffer export` with a reader that pauses after the first piece. */
async function pausedExport() {
  const child = spawn(process.execPath, [MAIN, 'buffer', 'export', '--config', folder], { env: environment() });
  children.push(child);
  let stderr = '';
  let text = '';
  child.stderr.setEncoding('utf8').on('data', (piece: string) => {
    stderr += piece;
  });
  child.stdout.setEncoding('utf8');
  await once(child.stdout, 'readable');
  text += child.stdout.read(1) as string;
  return {
    async rest() {
      child.stdout.on('data', (piece: string) => {
        text += piece;
      });
      const [code] = (await once(child, 'close')) as [number];
      const rows = text
        .split('\n')
        .slice(1)
        .filter((row) => row !== '');
      return { code, stderr, rows: rows.length, distinct: new Set(rows).size };
    },
  };
}

/** Runs a command until it ends. */
function run(...args: string[]): Promise<{ code: number; stderr: string }> {
  return new Promise((resolve) => {
    execFile(process.execPath, [MAIN, ...args, '--config', folder], { env: environment() }, (error, _stdout, stderr) =>
      resolve({ code: error ? Number(error.code) : 0, stderr }),
    );
  });
}

describe('export to a slow reader', () => {
  it('contains each value once, even if a backup and another export finish first', async () => {
    const slow = await pausedExport();
    const file = join(folder, 'values.csv');
    expect(await run('buffer', 'export', '--output', file)).toEqual({ code: 0, stderr: '' });
    expect(readFileSync(file, 'utf8').split('\n').length).toBe(1 + VALUES + 1);
    expect(await run('backup', join(folder, 'gateway.tar'))).toEqual({ code: 0, stderr: '' });
    expect(await maintain()).toBe(FLUSHES);
    expect(await slow.rest()).toEqual({ code: 0, stderr: '', rows: VALUES, distinct: VALUES });
    expect(await maintain()).toBeLessThan(FLUSHES);
  });

  it('fails if a limit drops values before they are read', async () => {
    const slow = await pausedExport();
    const options = storeOptions(bufferSettings(join(folder, 'state')));
    await flow.values.configure({ ...options, bounds: { ...options.bounds, maxAgeMs: 1 } });
    await maintain();
    const { code, stderr, rows } = await slow.rest();
    expect({ code, isShort: rows < VALUES }).toEqual({ code: 1, isShort: true });
    expect(stderr).toContain('incomplete');
  });
});
