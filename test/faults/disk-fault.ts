import { execFileSync, spawn } from 'node:child_process';
import { once } from 'node:events';
import { existsSync, mkdtempSync, readFileSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { basename, join } from 'node:path';
import { openDatabase } from '../../src/base/database.ts';
import { ValueStore } from '../../src/buffer/value-store.ts';

/** Compiles the layer between a program and its disk. Fails with what to install where there is no C compiler. */
export function compileDiskLayer(): string {
  const library = join(mkdtempSync(join(tmpdir(), 'tagferry-layer-')), 'disk-layer.so');
  const source = join(import.meta.dirname, 'disk-layer.c');
  try {
    execFileSync('cc', ['-shared', '-fPIC', '-O2', '-o', library, source, '-ldl', '-lpthread'], { stdio: 'pipe' });
  } catch (error) {
    throw new Error(`the fault tests need a C compiler (apt-get install gcc libc6-dev): ${String(error)}`);
  }
  return library;
}

export interface Run {
  acknowledged: Set<number>;
  settled: Set<number>;
  failed: string[];
  /** Spans that flushing made. */
  flushed: number;
  /** Spans that compaction made one of. */
  compacted: number;
  done: boolean;
  writes: number;
  syncs: number;
  failures: number;
}

interface Said {
  acknowledged?: number[];
  settled?: number[];
  failed?: string;
  flushed?: number;
  compacted?: number;
  done?: boolean;
}

/** Runs `take-in-process.ts` on a buffer in `folder` under the layer. */
export async function takeIn(
  library: string,
  folder: string,
  options: { orders?: string; journal?: string; commits?: number; maintenances?: number } = {},
): Promise<Run> {
  const counts = join(folder, 'counts');
  const orders = join(folder, 'orders');
  writeFileSync(orders, `${options.orders ?? ''}\n`);
  const script = join(import.meta.dirname, 'take-in-process.ts');
  const amounts = [options.commits ?? 30, options.maintenances ?? 1].map(String);
  const child = spawn(process.execPath, [script, join(folder, 'buffer.db'), ...amounts], {
    env: {
      PATH: process.env.PATH,
      LD_PRELOAD: library,
      DISK_LAYER_PATH: 'buffer.db',
      DISK_LAYER_ORDERS: orders,
      DISK_LAYER_COUNTS: counts,
      ...(options.journal === undefined ? {} : { DISK_LAYER_JOURNAL: options.journal }),
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
  const run: Run = {
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
  for (const line of stdout.split('\n')) {
    if (!line.startsWith('{')) continue;
    const said = JSON.parse(line) as Said;
    for (const number of said.acknowledged ?? []) run.acknowledged.add(number);
    for (const number of said.settled ?? []) run.settled.add(number);
    if (said.failed !== undefined) run.failed.push(said.failed);
    run.flushed += said.flushed ?? 0;
    run.compacted += said.compacted ?? 0;
    if (said.done) run.done = true;
  }
  if (!run.done) run.failed.push(`ended early: ${stderr.slice(0, 400)}`);
  if (existsSync(counts)) {
    const bytes = readFileSync(counts);
    run.writes = Number(bytes.readBigUInt64LE(0));
    run.syncs = Number(bytes.readBigUInt64LE(8));
    run.failures = Number(bytes.readBigUInt64LE(24));
  }
  return run;
}

/**
 * The files that a pulled plug would leave at the end of a journal, at worst: of each only what a sync that succeeded had
 * covered. What a failed sync was to cover never comes to the disk, though a later one succeeds: so do the kernels.
 */
export function pullThePlug(journal: string, into: string): void {
  const bytes = readFileSync(journal);
  const durable = new Map<string, Buffer>();
  const waiting = new Map<string, ((file: Buffer) => Buffer)[]>();
  for (let at = 0; at < bytes.length; ) {
    const [op, pathLength, offset, size] = [0, 8, 16, 24].map((each) => Number(bytes.readBigUInt64LE(at + each)));
    at += 32;
    const path = bytes.toString('utf8', at, at + pathLength!);
    at += pathLength!;
    const list = waiting.get(path) ?? [];
    waiting.set(path, list);
    if (op === 1) {
      const written = bytes.subarray(at, at + size!);
      at += size!;
      list.push((file) => {
        const grown =
          file.length < offset! + size! ? Buffer.concat([file, Buffer.alloc(offset! + size! - file.length)]) : file;
        written.copy(grown, offset);
        return grown;
      });
    } else if (op === 3) list.push((file) => Buffer.from(file.subarray(0, offset)));
    else {
      const synced = op === 2 ? list : [];
      durable.set(
        path,
        synced.reduce((file, change) => change(file), durable.get(path) ?? Buffer.alloc(0)),
      );
      list.length = 0;
    }
  }
  // The rollback journal of the time before WAL is deleted once it is over, which is no write.
  for (const [path, file] of durable) {
    if (!path.endsWith('.reserve') && !path.endsWith('-journal')) writeFileSync(join(into, basename(path)), file);
  }
}

/** Opens a buffer and takes out everything that stands in it. */
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
