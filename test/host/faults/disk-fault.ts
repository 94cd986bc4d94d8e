import { execFileSync, spawn } from 'node:child_process';
import { createHash } from 'node:crypto';
import { once } from 'node:events';
import { existsSync, mkdirSync, readFileSync, renameSync, writeFileSync } from 'node:fs';
import { basename, dirname, join } from 'node:path';
import { openDatabase } from '../../../src/base/database.ts';
import { ValueStore } from '../../../src/buffer/value-store.ts';
import { COMPILED_CODE } from '../made-once.ts';
import type { Round } from './take-in-process.ts';

/** Layer between a program and its disk. */
export const compileDiskLayer = () => compileLayer(join(import.meta.dirname, 'disk-layer.c'));

/** Compiles the LD_PRELOAD layer once for all tests. Fails with the package to install if there is no C compiler. */
export function compileLayer(source: string): string {
  const key = createHash('sha256').update(readFileSync(source)).digest('hex').slice(0, 16);
  const library = join(CACHE, `${basename(source, '.c')}-${key}.so`);
  if (existsSync(library)) return library;
  mkdirSync(CACHE, { recursive: true });
  // Concurrent compilations produce the same file, which is moved into place atomically.
  const making = `${library}.${process.pid}`;
  try {
    execFileSync('cc', ['-shared', '-fPIC', '-O2', '-o', making, source, '-ldl', '-lpthread'], { stdio: 'pipe' });
  } catch (error) {
    throw new Error(`the fault tests need a C compiler (apt-get install gcc libc6-dev): ${String(error)}`);
  }
  renameSync(making, library);
  return library;
}

const CACHE = join(import.meta.dirname, '../../../.cache');

export interface Run {
  acknowledged: Set<number>;
  settled: Set<number>;
  failed: string[];
  /** Spans created by flushing. */
  flushed: number;
  /** Spans merged by compaction. */
  compacted: number;
  done: boolean;
  writes: number;
  syncs: number;
  failures: number;
}

interface Said {
  folder?: string;
  acknowledged?: number[];
  settled?: number[];
  failed?: string;
  flushed?: number;
  compacted?: number;
  endedEarly?: string;
  done?: boolean;
  writes?: number;
  syncs?: number;
  failures?: number;
}

/** Runs `take-in-process.ts` on buffers in separate folders under the layer. Returns the runs. */
export async function takeIn(library: string, folder: string, rounds: readonly Round[]): Promise<Run[]> {
  const [counts, orders, journal] = ['counts', 'orders', JOURNAL].map((name) => join(folder, name));
  writeFileSync(orders!, '\n');
  const script = join(import.meta.dirname, 'take-in-process.ts');
  const child = spawn(process.execPath, [script, orders!, counts!, JSON.stringify(rounds)], {
    env: {
      ...COMPILED_CODE,
      PATH: process.env.PATH,
      LD_PRELOAD: library,
      DISK_LAYER_PATH: 'buffer.db',
      DISK_LAYER_ORDERS: orders,
      DISK_LAYER_COUNTS: counts,
      DISK_LAYER_JOURNAL: journal,
    },
  });
  let stdout = '';
  let stderr = '';
  child.stdout.on('data', (piece) => {
    stdout += piece;
  });
  child.stderr.on('data', (piece) => {
    stderr += piece;
  });
  await once(child, 'close');
  const runs: Run[] = [];
  for (const line of stdout.split('\n')) {
    if (!line.startsWith('{')) continue;
    const said = JSON.parse(line) as Said;
    if (said.folder !== undefined) runs.push(begun());
    note(runs.at(-1)!, said);
  }
  const isWhole = runs.length === rounds.length && runs.every((run) => run.done || run.failed.length > 0);
  if (!isWhole)
    throw new Error(`the process ended at round ${runs.length} of ${rounds.length}: ${stderr.slice(0, 2_000)}`);
  return runs;
}

const JOURNAL = 'journal';

function begun(): Run {
  return {
    acknowledged: new Set(),
    settled: new Set(),
    failed: [],
    flushed: 0,
    compacted: 0,
    done: false,
    writes: 0,
    syncs: 0,
    failures: 0,
  };
}

function note(run: Run, said: Said): void {
  for (const number of said.acknowledged ?? []) run.acknowledged.add(number);
  for (const number of said.settled ?? []) run.settled.add(number);
  if (said.failed !== undefined) run.failed.push(said.failed);
  if (said.endedEarly !== undefined) run.failed.push(`ended early: ${said.endedEarly}`);
  run.flushed += said.flushed ?? 0;
  run.compacted += said.compacted ?? 0;
  if (said.done) run.done = true;
  for (const name of ['writes', 'syncs', 'failures'] as const) run[name] = said[name] ?? run[name];
}

/** File operations in one folder, in the order recorded by the layer. */
type Change =
  | { path: string; kind: 'write'; offset: number; bytes: Buffer }
  | { path: string; kind: 'truncate'; length: number }
  | { path: string; kind: 'sync' | 'failed sync' };

/** Parses a process's journal by folder. */
export function readJournal(processFolder: string): Map<string, Change[]> {
  const journal = readFileSync(join(processFolder, JOURNAL));
  const byFolder = new Map<string, Change[]>();
  for (let at = 0; at < journal.length; ) {
    const [op, pathLength, offset, size] = [0, 8, 16, 24].map((each) => Number(journal.readBigUInt64LE(at + each)));
    at += 32;
    const path = journal.toString('utf8', at, at + pathLength!);
    at += pathLength!;
    const bytes = journal.subarray(at, op === 1 ? at + size! : at);
    at += bytes.length;
    // The file contains only reserved space of two megabytes.
    if (path.endsWith('.reserve')) continue;
    const changes = byFolder.get(dirname(path)) ?? [];
    byFolder.set(dirname(path), changes);
    if (op === 1) changes.push({ path, kind: 'write', offset: offset!, bytes });
    else if (op === 3) changes.push({ path, kind: 'truncate', length: offset! });
    else changes.push({ path, kind: op === 2 ? 'sync' : 'failed sync' });
  }
  return byFolder;
}

/**
 * Computes the files after a power cut in the worst case: only what a successful sync covered. Data of a failed sync never
 * reaches the disk, as in Linux. `from` is the previous state; default: empty.
 */
export function pullThePlug(changes: readonly Change[], into: string, from?: string): void {
  const durable = new Map<string, Buffer>();
  const first = (path: string) => {
    const before = from === undefined ? undefined : join(from, basename(path));
    return before !== undefined && existsSync(before) ? readFileSync(before) : Buffer.alloc(0);
  };
  const waiting = new Map<string, Change[]>();
  for (const change of changes) {
    const list = waiting.get(change.path) ?? [];
    waiting.set(change.path, list);
    if (change.kind === 'write' || change.kind === 'truncate') {
      list.push(change);
      continue;
    }
    const synced = change.kind === 'sync' ? list : [];
    durable.set(change.path, synced.reduce(changed, durable.get(change.path) ?? first(change.path)));
    list.length = 0;
  }
  // In rollback journal mode, used before WAL is enabled, the journal is deleted afterwards, which is not a write.
  for (const [path, file] of durable) if (!path.endsWith('-journal')) writeFileSync(join(into, basename(path)), file);
}

function changed(file: Buffer, change: Change): Buffer {
  if (change.kind === 'truncate') return Buffer.from(file.subarray(0, change.length));
  if (change.kind !== 'write') return file;
  const end = change.offset + change.bytes.length;
  const grown = file.length < end ? Buffer.concat([file, Buffer.alloc(end - file.length)]) : file;
  change.bytes.copy(grown, change.offset);
  return grown;
}

/** Opens a buffer and returns all its values. */
export function drain(path: string): { values: number[]; damaged: number } {
  const opening = ValueStore.open(
    openDatabase(path),
    path,
    {
      bounds: { maxBytes: 0, maxAgeMs: 0, minFree: { bytes: 0 }, full: 'drop-oldest' },
      flushAfterMs: 1,
      flushValues: 10_000,
    },
    { monotonicMs: 1, wallMs: 0, boot: 'another' },
  );
  const store = opening.store;
  const opened = opening;
  let damaged = opened.facts.damaged.length;
  const values: number[] = [];
  const id = store.operator.beginExport({});
  for (let done = false; !done; ) {
    const page = store.operator.exportPage(id);
    values.push(...page.columns.value.subarray(0, page.columns.length));
    done = page.done;
  }
  damaged += store.facts().damaged.length;
  store.close();
  return { values, damaged };
}
