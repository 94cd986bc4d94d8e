/**
 * A process that takes values into a buffer, posts and settles some, flushes the rest, and writes down what was acknowledged,
 * as lines of JSON on standard output, one for each call. A layer below it fails what the test tells it to.
 *
 * argv: path of the buffer, number of commits, maintenance steps after each (1 unless told; a compaction has its step where there is
 * nothing to flush). A failed commit is tried again with the same values, as a source does.
 */
import { writeSync } from 'node:fs';
import { openDatabase } from '../../src/base/database.ts';
import { codeOf } from '../../src/base/errors.ts';
import { ValueColumns } from '../../src/buffer/format/value-columns.ts';
import { SeriesCatalogue } from '../../src/buffer/series.ts';
import { ValueStore } from '../../src/buffer/value-store.ts';

const [path, commits, maintenances] = [process.argv[2]!, Number(process.argv[3]), Number(process.argv[4] ?? 1)];
const say = (line: object) => writeSync(1, `${JSON.stringify(line)}\n`);

let monotonicMs = 1000;
const opening = ValueStore.open(
  openDatabase(path, { checkpointPages: 40 }),
  path,
  {
    bounds: { maxBytes: 0, maxAgeMs: 0, minFree: { bytes: 0 }, full: 'drop-oldest' },
    flushAfterMs: 5,
    flushValues: 10_000,
  },
  { monotonicMs, wallMs: 0, boot: 'test' },
);
const store = opening.store;
const { series } = opening;
const catalogue = new SeriesCatalogue(series);
say({ opened: true });

/** Gives the error's code where it failed. */
function attempt(work: () => void): string | undefined {
  try {
    work();
    return undefined;
  } catch (error) {
    return codeOf(error) ?? String(error);
  }
}

let number = 0;
for (let turn = 0; turn < commits; turn++) {
  // So long that flushing never waits for company.
  monotonicMs += 120_000;
  const numbers = Array.from({ length: 20 }, () => number++);
  const append = () => {
    const columns = new ValueColumns();
    for (const each of numbers)
      columns.add(catalogue.idOf(1 + (each % 3), `k${each % 2}`, undefined, undefined), each, each, 0);
    const newSeries = catalogue.takeNew();
    const failed = attempt(() => store.commit({ columns, newSeries, monotonicMs, wallMs: 0 }));
    if (failed) catalogue.returnNew(newSeries);
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
say({ done: true, facts: store.facts() });
// No close: what a pulled plug would leave.
process.kill(process.pid, 'SIGKILL');
