/**
 * Process that accepts values into buffers, one after another: it posts and settles some, flushes the rest, and prints
 * acknowledged values as JSON lines. A layer below injects the failures that the test orders, separately for each
 * buffer. argv: file of the layer orders, file of its counts, and the rounds as JSON. A failed commit is retried with
 * the same values, as a source does. Transactions in progress remain open until the process is killed.
 */
import { readFileSync, writeFileSync, writeSync } from 'node:fs';
import { join } from 'node:path';
import { type Database, openDatabase } from '../../../src/base/database.ts';
import { codeOf } from '../../../src/base/errors.ts';
import { ValueColumns } from '../../../src/buffer/format/value-columns.ts';
import { SeriesCatalogue } from '../../../src/buffer/series.ts';
import { ValueStore } from '../../../src/buffer/value-store.ts';

/** A buffer and the operations on it. */
export interface Round {
  folder: string;
  /** Orders to the layer, with counts that start when the buffer is opened. */
  orders: string;
  commits: number;
  /** Number of maintenance steps after each commit. A step can compact only if there is nothing to flush. */
  maintenances: number;
}

const [ordersFile, countsFile] = [process.argv[2]!, process.argv[3]!];
const rounds = JSON.parse(process.argv[4]!) as Round[];
const say = (line: object) => writeSync(1, `${JSON.stringify(line)}\n`);

/** Returns the error code on failure. */
function attempt(work: () => void): string | undefined {
  try {
    work();
    return undefined;
  } catch (error) {
    return codeOf(error) ?? String(error);
  }
}

/** Writes, syncs, bytes and failures so far. */
function counts(): number[] {
  const bytes = readFileSync(countsFile);
  return [0, 8, 16, 24].map((at) => Number(bytes.readBigUInt64LE(at)));
}

/** Never closed, even if opening failed, because a killed process closes nothing. */
const databases: Database[] = [];

function takeIn({ folder, commits, maintenances }: Round): void {
  const path = join(folder, 'buffer.db');
  let monotonicMs = 1000;
  const database = openDatabase(path, { checkpointPages: 40 });
  databases.push(database);
  const opening = ValueStore.open(
    database,
    path,
    {
      bounds: { maxBytes: 0, maxAgeMs: 0, minFree: { bytes: 0 }, full: 'drop-oldest' },
      flushAfterMs: 5,
      flushValues: 10_000,
    },
    { monotonicMs, wallMs: 0, boot: 'test' },
  );
  const { series, store } = opening;
  const catalogue = new SeriesCatalogue(series);
  let number = 0;
  for (let turn = 0; turn < commits; turn++) {
    // Long enough that flushing never waits for more values.
    monotonicMs += 120_000;
    const numbers = Array.from({ length: 20 }, () => number++);
    const append = () => {
      const columns = new ValueColumns();
      for (const each of numbers)
        columns.add(catalogue.idOf(1 + (each % 3), `k${each % 2}`, undefined, undefined), each, each, 0);
      const newSeries = catalogue.takeUnsaved();
      const failed = attempt(() => store.commit({ columns, newSeries, monotonicMs }));
      if (failed) catalogue.returnUnsaved(newSeries);
      return failed;
    };
    for (let tries = 0; tries < 5; tries++) {
      const failed = append();
      if (failed === undefined) {
        say({ acknowledged: numbers });
        break;
      }
      say({ failed });
    }
    if (turn % 3 === 0) {
      const settled: number[] = [];
      const failed = attempt(() => {
        const { batch } = store.take({
          asset: 1 + (turn % 2),
          lane: turn % 2 ? 'live' : 'backlog',
          maxValues: 30,
          maxBytes: 10_000,
        });
        if (!batch) return;
        const body = JSON.parse(new TextDecoder().decode(batch.body)) as { values: { data: { value: number }[] }[] };
        settled.push(...body.values.flatMap((key) => key.data.map((point) => point.value)));
        store.settle(batch.id);
      });
      say(failed ? { failed } : { settled });
    }
    for (let step = 0; step < maintenances; step++) {
      const { spans } = store.facts();
      const failed = attempt(() => store.maintain({ monotonicMs }));
      if (failed) say({ failed });
      const now = store.facts().spans;
      if (now !== spans) say(now > spans ? { flushed: now - spans } : { compacted: spans - now + 1 });
    }
  }
}

for (const [index, round] of rounds.entries()) {
  // The file's length differs between rounds, because its modification time may be the same.
  writeFileSync(ordersFile, `${round.orders.padEnd(64 + (index % 2))}\n`);
  const before = counts();
  say({ folder: round.folder });
  try {
    takeIn(round);
    say({ done: true });
  } catch (error) {
    say({ endedEarly: String(error) });
  }
  const [writes, syncs, , failures] = counts().map((count, which) => count - before[which]!);
  say({ writes, syncs, failures });
}
// The databases are not closed, as after a power failure.
process.kill(process.pid, 'SIGKILL');
