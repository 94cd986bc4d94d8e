/** The main thread's view of the buffer: series and their numbers, lanes, ages. */
import { describe, expect, it } from 'vitest';
import { AcceptanceTimes } from '../../../src/buffer/acceptance-times.ts';
import { AddressIndex } from '../../../src/buffer/address-index.ts';
import type { AssetLanes } from '../../../src/buffer/client/lanes.ts';
import { type OutgoingPort, StoredValues } from '../../../src/buffer/client/stored-values.ts';
import { type Series, SeriesCatalogue } from '../../../src/buffer/series.ts';
import { ManualClock } from '../doubles/manual-clock.ts';

const PLAIN = { group: undefined, unit: undefined, instrumentation: undefined };

describe('series catalogue', () => {
  /** One series per form of address. */
  const SHAPES = [
    { asset: 1, key: 'flow', ...PLAIN },
    { asset: 2, key: 'flow', ...PLAIN },
    { asset: 1, key: 'level', ...PLAIN },
    { asset: 1, key: 'flow', group: 'process', unit: undefined, instrumentation: undefined },
    { asset: 1, key: 'flow', group: undefined, unit: { id: 12 }, instrumentation: undefined },
    { asset: 1, key: 'flow', group: undefined, unit: { id: 0 }, instrumentation: undefined },
    { asset: 1, key: 'flow', group: undefined, unit: { code: '12' }, instrumentation: undefined },
    { asset: 1, key: 'flow', group: undefined, unit: { code: '#12' }, instrumentation: undefined },
    { asset: 1, key: 'flow', group: undefined, unit: undefined, instrumentation: 12 },
    { asset: 12, key: 'flow', group: '12', unit: { id: 12 }, instrumentation: 7 },
    { asset: 3, key: 'a|b|12|c', group: 'process', unit: { code: 'kg' }, instrumentation: 12 },
  ] satisfies Omit<Series, 'id'>[];
  const idOf = (catalogue: SeriesCatalogue, { asset, key, group, unit, instrumentation }: Omit<Series, 'id'>) =>
    catalogue.idOf(asset, key, group, unit, instrumentation);
  const find = (catalogue: SeriesCatalogue, { asset, key, group, unit, instrumentation }: Omit<Series, 'id'>) =>
    catalogue.find(asset, key, group, unit, instrumentation);

  it('numbers series from 1 and returns the series for each number', () => {
    const catalogue = new SeriesCatalogue();
    expect([SHAPES.map((one) => find(catalogue, one)), catalogue.size]).toEqual([SHAPES.map(() => undefined), 0]);
    const numbers = SHAPES.map((_, i) => i + 1);
    const wanted = SHAPES.map((one, i) => ({ id: i + 1, ...one }));
    for (const _ of [1, 2]) expect(SHAPES.map((one) => idOf(catalogue, one))).toEqual(numbers);
    expect(SHAPES.map((one) => find(catalogue, one))).toEqual(numbers);
    expect([
      idOf(catalogue, { ...SHAPES[3]!, key: 'FLOW', group: 'Process' }),
      find(catalogue, { ...SHAPES[3]!, key: 'Flow', group: 'PROCESS' }),
    ]).toEqual([4, 4]);
    expect([...catalogue.all()]).toEqual(wanted);
    expect(numbers.map((id) => catalogue.get(id))).toEqual(wanted);
    expect([catalogue.get(0), catalogue.get(99)]).toEqual([undefined, undefined]);
    expect(catalogue.size).toBe(SHAPES.length);
    for (const asset of [1, 2, 3, 4])
      expect(catalogue.ofAsset(asset)).toEqual(wanted.filter((one) => one.asset === asset));
    for (const target of [1, 7, 12])
      expect(catalogue.ofInstrumentation(target)).toEqual(wanted.filter((one) => one.instrumentation === target));
    // The index by asset includes series created after the first lookup.
    const late = { asset: 4, key: 'late', ...PLAIN };
    expect([idOf(catalogue, late), idOf(catalogue, { ...late, asset: 1 })]).toEqual([12, 13]);
    expect([catalogue.ofAsset(4), catalogue.ofAsset(1).at(-1)]).toEqual([
      [{ id: 12, ...late }],
      { id: 13, ...late, asset: 1 },
    ]);
    expect(catalogue.takeUnsaved()).toEqual([...wanted, { id: 12, ...late }, { id: 13, ...late, asset: 1 }]);
    expect(catalogue.takeUnsaved()).toEqual([]);
  });

  it('starts with stored series and assigns unused numbers first', () => {
    const known = [SHAPES[0]!, SHAPES[4]!, SHAPES[9]!].map((one, i) => ({ id: [5, 2, 3][i]!, ...one }));
    const catalogue = new SeriesCatalogue(known);
    expect([...catalogue.all()]).toEqual(known.toSorted((one, other) => one.id - other.id));
    expect(catalogue.ofAsset(1).map(({ id }) => id)).toEqual([2, 5]);
    expect([catalogue.size, catalogue.takeUnsaved()]).toEqual([3, []]);
    const news = [1, 2, 3, 6].map((i) => idOf(catalogue, SHAPES[i]!));
    expect([news, idOf(catalogue, SHAPES[0]!)]).toEqual([[1, 4, 6, 7], 5]);
    expect(catalogue.takeUnsaved().map(({ id }) => id)).toEqual([1, 4, 6, 7]);
  });

  it('returns the series from a failed commit again, before newer series', () => {
    const catalogue = new SeriesCatalogue();
    for (const i of [0, 1]) idOf(catalogue, SHAPES[i]!);
    const failed = catalogue.takeUnsaved();
    idOf(catalogue, SHAPES[2]!);
    catalogue.returnUnsaved(failed);
    expect(catalogue.takeUnsaved().map(({ id }) => id)).toEqual([1, 2, 3]);
  });
});

describe('address index', () => {
  it('finds thousands of addresses while it grows', () => {
    const texts: (string | undefined)[] = [undefined];
    const index = new AddressIndex(texts);
    const expectAll = () => {
      const wrong = texts.filter((text, id) => text !== undefined && index.find(text) !== id);
      expect([wrong, index.size]).toEqual([[], texts.length - 1]);
    };
    for (let id = 1; id <= 3_000; id++) {
      const text = `1||#12||machine.serial-${id}`;
      expect(index.find(text)).toBeUndefined();
      texts.push(text);
      index.add(text, id);
      // Numbers at and between the sizes at which the table doubles.
      if ((id & (id + 1)) === 0 || (id & (id - 1)) === 0 || id % 500 === 0) expectAll();
    }
  });
});

describe('uplink view of the buffer', () => {
  it('contains lanes for assets with pending values, and notifies listeners of changes', () => {
    const values = new StoredValues({} as OutgoingPort, new ManualClock(), () => {});
    const lane = (asset: number, live: number, backlog: number): AssetLanes => ({
      asset,
      live,
      backlog,
      oldestLiveAtMs: 0,
      oldestBacklogAt: 0,
    });
    const changes = [0, 0];
    const ends = changes.map((_, i) => values.onChange(() => changes[i]!++));
    values.update([lane(1, 1, 0), lane(2, 0, 1), lane(3, 0, 0)]);
    expect([[...values.lanes()], changes]).toEqual([
      [
        [1, lane(1, 1, 0)],
        [2, lane(2, 0, 1)],
      ],
      [1, 1],
    ]);
    ends[0]!();
    values.update([]);
    values.update([lane(2, 0, 0), lane(1, 0, 5)]);
    expect([[...values.lanes()], changes]).toEqual([[[1, lane(1, 0, 5)]], [1, 2]]);
  });
});

describe('acceptance times', () => {
  it('are compared within a run, and values from earlier runs also age by the duration of later runs', () => {
    const times = new AcceptanceTimes();
    // Before `open`, run 0 is the current one.
    expect([times.ageMs(0, 10, 25), times.arrivalMs(0, 10), times.ageMs(1, 10, 25)]).toEqual([15, 10, 25]);
    times.open(9, 1_000, [{ id: 8, beganMs: 0, lastMs: 1e6 }]);
    times.open(7, 5_000, [
      { id: 4, beganMs: 100, lastMs: 900 },
      { id: 5, beganMs: 700, lastMs: 200 },
      { id: 6, beganMs: 50, lastMs: 250 },
    ]);
    const ages = (run: number, monotonicMs: number) =>
      [4_000, 5_000, 5_300].map((nowMs) => times.ageMs(run, monotonicMs, nowMs));
    // The current run.
    expect([ages(7, 5_100), ages(7, 4_000)]).toEqual([
      [0, 0, 200],
      [0, 1_000, 1_300],
    ]);
    expect([ages(6, 200), ages(6, 300)]).toEqual([
      [50, 50, 350],
      [0, 0, 300],
    ]);
    // A run whose clock stepped back has no duration.
    expect([ages(5, 150), ages(4, 500)]).toEqual([
      [250, 250, 550],
      [600, 600, 900],
    ]);
    // Values of an unknown run are as old as this run.
    expect([ages(8, 1), ages(9, 9_000)]).toEqual([
      [0, 0, 300],
      [0, 0, 300],
    ]);
    // Times of earlier runs translated into this one.
    expect([times.acceptedMs(7, 42), times.acceptedMs(6, 200), times.acceptedMs(4, 500)]).toEqual([42, 4_950, 4_400]);
    expect([times.acceptedMs(6, 9e9), times.acceptedMs(8, 1)]).toEqual([5_000, 5_000]);
    expect([times.arrivalMs(7, 42), times.arrivalMs(6, 42)]).toEqual([42, 5_000]);
    expect([
      times.arrivalOf({ run: 7, monotonicMs: 42 }),
      times.arrivalOf({ run: 4, monotonicMs: 42 }),
      times.arrivalOf(undefined),
    ]).toEqual([42, 5_000, 0]);
  });
});
