/**
 * Process that uses a state folder through the store thread host, as the agent does, and prints a JSON line for each
 * step: offered, acknowledged and posted values. A layer below injects faults and may end the process at any point. The
 * output contains what the model in `rebuild-world.ts` requires. argv: the work as JSON (`Work`).
 */
import { writeFileSync, writeSync } from 'node:fs';
import { eventStore } from '../../../src/agent/event-store.ts';
import { systemClock } from '../../../src/base/clock.ts';
import { codeOf, StoreError } from '../../../src/base/errors.ts';
import type { Batch } from '../../../src/buffer/client/lanes.ts';
import { ValueColumns } from '../../../src/buffer/format/value-columns.ts';
import { SeriesCatalogue } from '../../../src/buffer/series.ts';
import type { StoreFacts } from '../../../src/buffer/store-facts.ts';
import type { OpenedStore } from '../../../src/store/store-api.ts';
import { StoreHost } from '../../../src/store/store-host.ts';
import { errorOf, type StoreAnswer, type StoreCall } from '../../../src/store/store-messages.ts';
import { ManualClock } from '../../unit/doubles/manual-clock.ts';

export interface Work {
  folder: string;
  /** `log`: as `fill`, without a flush. */
  kind: 'fill' | 'log' | 'random' | 'steps' | 'drain';
  seed: number;
  /** Number of the first value. */
  first: number;
  steps: number;
  /** Layer orders and the file from which the layer reads them. */
  orders: string;
  ordersFile: string;
}

/** A value: number, asset, key, time. */
export type Told = [number, number, string, number];

export interface Said {
  /** Values of a commit, and whether it was acknowledged. */
  tries?: Told[];
  acknowledged?: boolean;
  /** Numbers that the platform accepted, in body order. */
  posted?: number[];
  /** Posted values that were in the log. */
  liveValues?: number;
  quarantined?: number[];
  failed?: string;
  facts?: Pick<StoreFacts, 'isCarrying' | 'damaged'>;
  opened?: Pick<OpenedStore, 'setAside'>;
  done?: boolean;
}

const work = JSON.parse(process.argv[2]!) as Work;
const say = (line: Said) => writeSync(1, `${JSON.stringify(line)}\n`);
const chance = new ManualClock(0, work.seed);
const random = (below: number) => Math.floor(chance.random() * below);

let hear: (call: StoreCall) => void = () => {};
let answer: StoreAnswer | undefined;
new StoreHost(
  {
    on: (_event, listen) => {
      hear = listen;
    },
    postMessage: (message) => {
      if ('id' in message) answer = message;
    },
  },
  eventStore,
).serve();

function ask<Result>(service: string, method: string, ...args: unknown[]): Result {
  hear({ id: 1, service, method, args });
  if (!answer || 'failure' in answer) throw answer ? errorOf(answer.failure) : new Error('no answer');
  const result = answer.result as Result;
  const facts = (result as { facts?: StoreFacts } | undefined)?.facts ?? (result as Partial<StoreFacts> | undefined);
  if (facts?.lanes && facts.damaged!.length > 0)
    say({ facts: { isCarrying: facts.isCarrying!, damaged: facts.damaged! } });
  return result;
}

/** An unavailable store reports this state; any other error is a defect. */
function attempt<Result>(step: () => Result): Result | undefined {
  try {
    return step();
  } catch (error) {
    if (!(error instanceof StoreError) || codeOf(error) === 'store.failed') throw error;
    say({ failed: `${codeOf(error)}: ${error.message}` });
    return undefined;
  }
}

let nowMs = systemClock.monotonicMs() + 1_000;
let catalogue: SeriesCatalogue;
let next = work.first;

function open(): void {
  const values = {
    bounds: { maxBytes: 0, maxAgeMs: 0, minFree: { bytes: 0 }, full: 'drop-oldest' },
    flushAfterMs: 50,
    flushValues: work.kind === 'fill' || work.kind === 'log' ? 1_000_000 : 2_000,
    stepSize: { values: 400, segments: 20 },
  };
  const opened = ask<OpenedStore>('thread', 'open', { stateDir: work.folder, holder: 'daemon', values });
  catalogue = new SeriesCatalogue(opened.series);
  say({ opened: { setAside: opened.setAside }, facts: { isCarrying: opened.facts.isCarrying, damaged: [] } });
}

function commit(count: number): StoreFacts | undefined {
  const columns = new ValueColumns();
  const tries: Told[] = [];
  for (let i = 0; i < count; i++) {
    const [asset, key] = [1 + random(4), `k${random(3)}`];
    // Some values are late or have the time of another value.
    const timeMs = 1_700_000_000_000 + next - (random(10) === 0 ? random(2_000) : random(3));
    columns.add(catalogue.idOf(asset, key, undefined, undefined), timeMs, next + 0.123456789, 0);
    tries.push([next++, asset, key, timeMs]);
  }
  if (count > 0) say({ tries });
  const newSeries = catalogue.takeUnsaved();
  const facts = attempt(() =>
    ask<StoreFacts>('values', 'commit', {
      columns: count > 0 ? columns : undefined,
      newSeries,
      monotonicMs: nowMs,
      wallMs: 0,
    }),
  );
  if (!facts) catalogue.returnUnsaved(newSeries);
  else if (count > 0) say({ acknowledged: true });
  return facts;
}

function numbersOf(batch: Batch): number[] {
  const body = JSON.parse(new TextDecoder().decode(batch.body)) as { values: { data: { value: number }[] }[] };
  return body.values.flatMap((key) => key.data.map(({ value }) => Math.floor(value)));
}

/** Reads a batch, and has the platform accept it, reject it, or be unavailable. */
function post(asset: number, lane: 'live' | 'backlog', max: number, isSure = true): boolean {
  const taken = attempt(() =>
    ask<{ batch?: Batch }>('values', 'take', { asset, lane, maxValues: max, maxBytes: 400_000 }),
  );
  if (!taken?.batch) return false;
  const { id } = taken.batch;
  const kind = isSure ? 9 : random(10);
  if (kind === 0) attempt(() => ask('values', 'release', id));
  else if (kind === 1) {
    say({ quarantined: numbersOf(taken.batch) });
    attempt(() => ask('values', 'quarantine', id, { status: 422, message: 'no', atMs: 0 }));
  } else {
    say({ posted: numbersOf(taken.batch), liveValues: taken.batch.liveValues });
    attempt(() => ask('values', 'settle', id));
  }
  return true;
}

function maintain(): StoreFacts | undefined {
  return attempt(() => ask<StoreFacts>('values', 'maintain', { monotonicMs: nowMs }));
}

function randomStep(): void {
  nowMs += random(200);
  const kind = random(12);
  if (kind < 4) commit(1 + random(60));
  else if (kind < 7) post(1 + random(4), random(2) ? 'live' : 'backlog', 1 + random(80), false);
  else if (kind < 11) for (let i = random(6); i >= 0; i--) maintain();
  else if (random(4) === 0) {
    // The disk is full for some time.
    writeFileSync(work.ordersFile, `${work.orders}\nrefuse_writes 28\n`);
    for (let i = random(5); i >= 0; i--) commit(1 + random(20));
    for (let i = random(8); i >= 0; i--) maintain();
    writeFileSync(work.ordersFile, `${work.orders}\n`);
  }
}

/** Posts all stored values, backlog first. */
function drain(): void {
  const until = Date.now() + 60_000;
  for (let facts: StoreFacts | undefined; ; ) {
    let took = false;
    for (let asset = 1; asset <= 5; asset++) {
      for (const lane of ['backlog', 'live'] as const) took = post(asset, lane, 500) || took;
    }
    nowMs += 100_000;
    maintain();
    facts = commit(0);
    if (facts && !took && !facts.isCarrying && facts.logValues + facts.segmentValues === 0) break;
    if (Date.now() > until) throw new Error(`does not end: ${JSON.stringify(facts)}`);
    // A failed rescue is retried after one second.
    if (!facts) Atomics.wait(new Int32Array(new SharedArrayBuffer(4)), 0, 0, 100);
  }
  const quarantine = ask<{ series: { count: number }[] }>('operator', 'countQuarantine');
  say({ quarantined: [quarantine.series.reduce((sum, { count }) => sum + count, 0)], done: true });
}

open();
if (work.kind === 'fill') {
  for (let step = 0; step < work.steps; step++) {
    commit(60);
    nowMs += 120_000;
    for (let i = 0; i < 20 && maintain()?.maintenanceDue; i++);
    if (step % 20 === 19) post(1 + random(4), 'backlog', 40);
  }
  for (let i = 0; i < 3; i++) commit(60);
  ask('thread', 'close');
  say({ done: true });
} else if (work.kind === 'log') {
  for (let step = 0; step < work.steps; step++) commit(1_000);
  ask('thread', 'close');
  say({ done: true });
} else if (work.kind === 'steps') {
  // Posts of one asset read the bad sector, while values arrive and others are posted.
  for (let step = 0; step < work.steps; step++) {
    const facts = commit(10);
    if (facts) say({ facts: { isCarrying: facts.isCarrying, damaged: [] } });
    for (let asset = 1; asset <= 4; asset++) post(asset, step % 2 ? 'backlog' : 'live', 60);
    maintain();
    nowMs += 10;
  }
  commit(0);
  ask('thread', 'close');
  say({ done: true });
} else {
  for (let step = 0; work.kind === 'random' && step < work.steps; step++) randomStep();
  if (work.kind === 'random') process.kill(process.pid, 'SIGKILL');
  drain();
  ask('thread', 'close');
}
