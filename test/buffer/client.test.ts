/** What the main thread keeps of the buffer: which series there are and under which number, what waits, and how old it is. */
import { describe, expect, it } from 'vitest';
import { AcceptanceTimes } from '../../src/buffer/acceptance-times.ts';
import { AddressIndex } from '../../src/buffer/address-index.ts';
import type { AssetLanes, Batch } from '../../src/buffer/client/lanes.ts';
import { SeriesKeeping } from '../../src/buffer/client/series-keeping.ts';
import { StoredValues, type TrustedTime } from '../../src/buffer/client/stored-values.ts';
import { type Series, SeriesCatalogue } from '../../src/buffer/series.ts';
import type { StoreFacts } from '../../src/buffer/store-facts.ts';
import { ManualClock } from '../doubles/manual-clock.ts';

const PLAIN = { group: undefined, unit: undefined, instrumentation: undefined };

describe('the catalogue of series', () => {
  /** Of every shape that an address has. */
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

  it('has a number for each address, from 1 on, and says of each number whose it is', () => {
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
    expect([catalogue.size, catalogue.changes, catalogue.forgettings]).toEqual([SHAPES.length, SHAPES.length, 0]);
    for (const asset of [1, 2, 3, 4])
      expect(catalogue.ofAsset(asset)).toEqual(wanted.filter((one) => one.asset === asset));
    for (const target of [1, 7, 12])
      expect(catalogue.ofInstrumentation(target)).toEqual(wanted.filter((one) => one.instrumentation === target));
    // Asked once, the assets are kept up.
    const late = { asset: 4, key: 'late', ...PLAIN };
    expect([idOf(catalogue, late), idOf(catalogue, { ...late, asset: 1 })]).toEqual([12, 13]);
    expect([catalogue.ofAsset(4), catalogue.ofAsset(1).at(-1)]).toEqual([
      [{ id: 12, ...late }],
      { id: 13, ...late, asset: 1 },
    ]);
    expect(catalogue.takeNew()).toEqual([...wanted, { id: 12, ...late }, { id: 13, ...late, asset: 1 }]);
    expect(catalogue.takeNew()).toEqual([]);
  });

  it('begins with what the store knows, and gives the numbers between to the next', () => {
    const known = [SHAPES[0]!, SHAPES[4]!, SHAPES[9]!].map((one, i) => ({ id: [5, 2, 3][i]!, ...one }));
    const catalogue = new SeriesCatalogue(known);
    expect([...catalogue.all()]).toEqual(known.toSorted((one, other) => one.id - other.id));
    expect(catalogue.ofAsset(1).map(({ id }) => id)).toEqual([2, 5]);
    expect([catalogue.size, catalogue.changes, catalogue.takeNew()]).toEqual([3, 0, []]);
    const news = [1, 2, 3, 6].map((i) => idOf(catalogue, SHAPES[i]!));
    expect([news, idOf(catalogue, SHAPES[0]!)]).toEqual([[1, 4, 6, 7], 5]);
    expect(catalogue.takeNew().map(({ id }) => id)).toEqual([1, 4, 6, 7]);
  });

  it('brings again what a commit did not write, before what came since', () => {
    const catalogue = new SeriesCatalogue();
    for (const i of [0, 1]) idOf(catalogue, SHAPES[i]!);
    const failed = catalogue.takeNew();
    idOf(catalogue, SHAPES[2]!);
    catalogue.returnNew(failed);
    expect(catalogue.takeNew().map(({ id }) => id)).toEqual([1, 2, 3]);
  });

  it('gives a number that was forgotten to another, the first forgotten first, and says that it is another now', () => {
    const catalogue = new SeriesCatalogue();
    for (const shape of SHAPES.slice(0, 6)) idOf(catalogue, shape);
    catalogue.takeNew();
    idOf(catalogue, SHAPES[6]!);
    expect(catalogue.ofAsset(1)).toHaveLength(6);
    // The last is not on disk yet, and nobody has the number 40.
    catalogue.forget([4, 7, 40, 2]);
    expect([catalogue.size, catalogue.changes, catalogue.forgettings]).toEqual([5, 9, 1]);
    expect([2, 4, 7].map((id) => catalogue.get(id)?.key)).toEqual([undefined, undefined, 'flow']);
    expect(SHAPES.slice(0, 7).map((one) => find(catalogue, one))).toEqual([1, undefined, 3, undefined, 5, 6, 7]);
    expect([catalogue.ofAsset(1).map(({ id }) => id), catalogue.ofAsset(2)]).toEqual([[1, 3, 5, 6, 7], []]);
    catalogue.forget([3]);
    const current = (forgettings: number) =>
      [1, 2, 3, 4, 5, 7, 99].filter((id) => !catalogue.isCurrent(id, forgettings));
    expect([current(0), current(1), current(2)]).toEqual([[2, 3, 4], [3], []]);
    expect([7, 8, 9, 10].map((i) => idOf(catalogue, SHAPES[i]!))).toEqual([4, 2, 3, 8]);
    // Forgotten again, of the other.
    catalogue.takeNew();
    catalogue.forget([4]);
    expect([catalogue.isCurrent(4, 2), catalogue.isCurrent(4, 3), catalogue.isCurrent(2, 1)]).toEqual([
      false,
      true,
      true,
    ]);
  });
});

describe('the index of addresses', () => {
  it('finds what a list of thousands says, while it grows and after some have left', () => {
    const clock = new ManualClock();
    const texts: (string | undefined)[] = [undefined];
    const index = new AddressIndex(texts);
    const expectAll = () => {
      const wrong = texts.filter((text, id) => text !== undefined && index.find(text) !== id);
      expect([wrong, index.size]).toEqual([[], texts.filter((text) => text !== undefined).length]);
    };
    for (let id = 1; id <= 3_000; id++) {
      const text = `1||#12||machine.serial-${id}`;
      expect(index.find(text)).toBeUndefined();
      texts.push(text);
      index.add(text, id);
      // At the sizes at which it doubles, and between.
      if ((id & (id + 1)) === 0 || (id & (id - 1)) === 0 || id % 500 === 0) expectAll();
    }
    const gone = texts.splice(0, texts.length, ...texts.map((text) => (clock.random() < 0.5 ? undefined : text)));
    index.rebuild();
    expectAll();
    expect(
      gone.filter((text, id) => text !== undefined && texts[id] === undefined && index.find(text) !== undefined),
    ).toEqual([]);
    for (const [id, text] of gone.entries()) {
      if (text === undefined || texts[id] !== undefined) continue;
      texts[id] = text;
      index.add(text, id);
    }
    expectAll();
  });
});

describe('who forgets series', () => {
  function world(more: { idle?: () => number[]; isKept?: (id: number) => boolean; count?: number } = {}) {
    const clock = new ManualClock();
    const catalogue = new SeriesCatalogue();
    for (let i = 0; i < (more.count ?? 32); i++) catalogue.idOf(1, `k${i}`, undefined, undefined);
    catalogue.takeNew();
    const said: string[] = [];
    const named = new Set<number>();
    const idle = { ids: [] as number[] };
    const keeping = new SeriesKeeping({
      port: {
        idleSeries: async () => {
          said.push('asks');
          return more.idle?.() ?? idle.ids;
        },
        forgetSeries: async (ids) => void said.push(`store forgets ${ids.join(' ')}`),
      },
      catalogue,
      committer: {
        watchSeries: () => {
          said.push('watches');
          return { named, end: () => void said.push('watches no more') };
        },
      },
      clock,
      isKept: more.isKept ?? (() => false),
      onForgotten: (ids) =>
        said.push(`told ${ids.join(' ')}, of which ${ids.filter((id) => catalogue.get(id)).length} are known`),
    });
    return { clock, catalogue, keeping, said, named, idle, heard: () => said.splice(0) };
  }

  it('watches while the store looks, spares what was named meanwhile or is kept, and tells the store last', async () => {
    const { keeping, named, heard, idle } = world({ isKept: (id) => id === 3 });
    idle.ids = [1, 2, 3, 4, 5];
    named.add(2);
    expect(await keeping.forget()).toBe(3);
    expect(heard()).toEqual([
      'watches',
      'asks',
      'told 1 4 5, of which 0 are known',
      'watches no more',
      'store forgets 1 4 5',
    ]);
    idle.ids = [2, 3];
    expect([await keeping.forget(), heard()]).toEqual([0, ['watches', 'asks', 'watches no more']]);
  });

  it('watches no more though the store fails, and looks again when it is time', async () => {
    let isBroken = true;
    const { keeping, heard, clock } = world({
      idle: () => {
        if (isBroken) throw new Error('no');
        return [];
      },
    });
    await expect(keeping.keep()).rejects.toThrow('no');
    expect(heard()).toEqual(['watches', 'asks', 'watches no more']);
    isBroken = false;
    await clock.advance(9_999);
    expect([await keeping.keep(), heard()]).toEqual([0, []]);
    await clock.advance(1);
    expect([await keeping.keep(), heard()]).toEqual([0, ['watches', 'asks', 'watches no more']]);
  });

  it.each([
    // Of 32 more than 2 are worth looking again soon.
    [3, [10, 10, 10]],
    [2, [20, 40, 80, 160, 300, 300]],
    [0, [20, 40, 80, 160, 300, 300]],
  ])('looks at longer intervals while it finds %i of 32', async (found, pauses) => {
    const { keeping, catalogue, clock, heard, idle } = world();
    const look = async () => {
      // As many as before.
      for (let i = 0; catalogue.size < 32; i++) catalogue.idOf(2, `n${i}`, undefined, undefined);
      catalogue.takeNew();
      idle.ids = [...catalogue.all()].slice(0, found).map(({ id }) => id);
      await keeping.keep();
      return heard().includes('asks');
    };
    expect(await look()).toBe(true);
    for (const seconds of pauses) {
      await clock.advance(seconds * 1_000 - 1);
      expect([seconds, await look()]).toEqual([seconds, false]);
      await clock.advance(1);
      expect([seconds, await look()]).toEqual([seconds, true]);
    }
  });
});

describe('what the uplink sees of the store', () => {
  function world(time?: TrustedTime) {
    const clock = new ManualClock(500_000);
    const asked: unknown[] = [];
    const noted: unknown[] = [];
    const answers: { batch?: Partial<Batch>; batches?: Partial<Batch>[] } = {};
    const factsOf = (name: string) => ({ name }) as unknown as StoreFacts;
    const port = {
      take: async (request: unknown) => {
        asked.push(['take', request]);
        return { batch: answers.batch as Batch, facts: factsOf('take') };
      },
      divide: async (batch: number) => {
        asked.push(['divide', batch]);
        return { batches: answers.batches as Batch[], facts: factsOf('divide') };
      },
      ...Object.fromEntries(
        ['settle', 'release', 'quarantine', 'holdSeries'].map((name) => [
          name,
          async (...args: unknown[]) => {
            asked.push([name, ...args]);
            return factsOf(name);
          },
        ]),
      ),
    };
    const values = new StoredValues(
      port as never,
      clock,
      (facts) => noted.push((facts as unknown as { name: string }).name),
      time,
    );
    return { values, clock, asked, noted, answers };
  }
  const REQUEST = { asset: 1, lane: 'live', maxValues: 5, maxBytes: 100 } as const;

  it('is asked for by a message each, and every answer is passed on', async () => {
    const { values, asked, noted, answers, clock } = world();
    answers.batches = [{ id: 8 }, { id: 9 }];
    expect(await values.take(REQUEST)).toBeUndefined();
    await values.settle(3);
    await values.release(4);
    expect(await values.divide(5)).toEqual(answers.batches);
    clock.jumpWall(7);
    await values.quarantine(6, { status: 422, message: 'no' });
    await values.holdSeries([1, 2]);
    expect(asked).toEqual([
      ['take', REQUEST],
      ['settle', 3],
      ['release', 4],
      ['divide', 5],
      ['quarantine', 6, { status: 422, message: 'no', atMs: 500_007 }],
      ['holdSeries', [1, 2]],
    ]);
    expect(noted).toEqual(['take', 'settle', 'release', 'divide', 'quarantine', 'holdSeries']);
  });

  it.each([
    [undefined, []],
    [{}, []],
    [{ corrected: 0, doubtful: 0 }, []],
    [{ corrected: 2, doubtful: 0 }, [[2, 0]]],
    [{ corrected: 0, doubtful: 3 }, [[0, 3]]],
    [{ corrected: 2 }, [[2, 0]]],
    [{ doubtful: 3 }, [[0, 3]]],
  ])('knows the trusted time, and tells what was corrected by it: %j', async (batch, expected) => {
    const told: number[][] = [];
    const { values, asked, answers, clock } = world({
      nowMs: () => 9_000_000,
      restamped: (...counts) => told.push(counts),
    });
    if (batch) answers.batch = batch;
    expect(await values.take(REQUEST)).toBe(batch);
    expect([asked, told]).toEqual([
      [['take', { ...REQUEST, trustedOffsetMs: 9_000_000 - clock.monotonicMs() }]],
      expected,
    ]);
  });

  it('corrects nothing while the time is not known, and needs nobody who is told', async () => {
    const { values, asked, answers } = world({ nowMs: () => undefined });
    answers.batch = { corrected: 1, doubtful: 1 };
    expect(await values.take(REQUEST)).toBe(answers.batch);
    expect(asked).toEqual([['take', REQUEST]]);
  });

  it('has a lane for each asset of which something waits, and tells whoever listens of each change', () => {
    const { values } = world();
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

describe('when values were accepted', () => {
  it('is counted within a run, and what an earlier one accepted grows by what the later ones lasted', () => {
    const times = new AcceptanceTimes();
    // Before anything is opened: by the clock of the run 0.
    expect([times.ageMs(0, 10, 25), times.arrivalMs(0, 10), times.ageMs(1, 10, 25)]).toEqual([15, 10, 25]);
    times.open(9, 1_000, [{ id: 8, beganMs: 0, lastMs: 1e6 }]);
    times.open(7, 5_000, [
      { id: 4, beganMs: 100, lastMs: 900 },
      { id: 5, beganMs: 700, lastMs: 200 },
      { id: 6, beganMs: 50, lastMs: 250 },
    ]);
    const ages = (run: number, monotonicMs: number) =>
      [4_000, 5_000, 5_300].map((nowMs) => times.ageMs(run, monotonicMs, nowMs));
    // Of this run.
    expect([ages(7, 5_100), ages(7, 4_000)]).toEqual([
      [0, 0, 200],
      [0, 1_000, 1_300],
    ]);
    expect([ages(6, 200), ages(6, 300)]).toEqual([
      [50, 50, 350],
      [0, 0, 300],
    ]);
    // A run whose clock stepped back lasted nothing.
    expect([ages(5, 150), ages(4, 500)]).toEqual([
      [250, 250, 550],
      [600, 600, 900],
    ]);
    // Of one that nobody knows any more: as old as this one.
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
