import { pino } from 'pino';
import { beforeEach, describe, expect, it } from 'vitest';
import type { Batch } from '../../src/buffer/client/lanes.ts';
import { DeliveryLog } from '../../src/uplink/delivery-log.ts';
import type { Outage } from '../../src/uplink/platform-availability.ts';
import type { Verdict } from '../../src/uplink/verdict.ts';
import { ManualClock } from '../doubles/manual-clock.ts';

/** Every line that the uplink writes of its batches, whole; and which lines of trouble are loud. */
const [DEBUG, INFO, WARN, ERROR] = [20, 30, 40, 50];
const MINUTE = 60_000;
const BATCH = { name: 'x-1', asset: 7 };
const OTHER = { name: 'x-2', asset: 8 };
const SLICE: Batch = {
  id: 3,
  asset: 7,
  series: [11, 12, 13],
  values: 20,
  liveValues: 20,
  backlogValues: 0,
  body: new Uint8Array(100),
};
const LONE: Batch = { ...SLICE, id: 4, series: [11], values: 1, liveValues: 1 };
const REFUSAL = { status: 400, message: 'no such unit' };
const REFUSED: Verdict = { meaning: 'refused', code: '400', status: 400, words: 'no such unit' };
const FAILED: Verdict = { meaning: 'later', code: '503', status: 503, words: 'busy' };

let clock: ManualClock;
let log: DeliveryLog;
let lines: Record<string, unknown>[];

beforeEach(() => {
  clock = new ManualClock();
  lines = [];
  const write = (line: string) => void lines.push(JSON.parse(line));
  log = new DeliveryLog(clock, pino({ base: null, level: 'debug', timestamp: false }, { write }));
});

/** What was written since it was last asked. */
const written = () => lines.splice(0);
/** The same, of each line its level and count. */
const loudness = () => written().map(({ level, count }) => (count === undefined ? level : `${level} ${count}`));

function outageOf(facts: Partial<Outage> = {}): Outage {
  const nowMs = clock.monotonicMs();
  const said = { code: '503', words: 'busy', isForeign: false, attempts: 1 };
  return { sinceMs: nowMs, sincePost: 0, ...said, nextTryAtMs: nowMs + 1_000, ...facts };
}

describe('each step of a batch', () => {
  it('is a line at debug that names the batch and says what went', () => {
    log.taken(BATCH, SLICE, { lane: 'live', kind: 'live', trial: false });
    log.taken(OTHER, LONE, { lane: 'backlog', kind: 'probe', trial: true });
    const taken = { level: DEBUG, event: 'uplink.taken', msg: 'a batch is to be posted' };
    expect(written()).toEqual([
      { ...taken, batch: 'x-1', asset: 7, slice: 3, lane: 'live', kind: 'live', values: 20, bytes: 100, series: 3 },
      {
        ...taken,
        batch: 'x-2',
        asset: 8,
        slice: 4,
        lane: 'backlog',
        kind: 'probe',
        values: 1,
        bytes: 100,
        series: 1,
        trial: true,
      },
    ]);
    log.posted(BATCH, SLICE, 9, FAILED, 12.6);
    log.posted(BATCH, SLICE, 10, undefined, 0.4);
    const posted = { level: DEBUG, event: 'uplink.posted', msg: 'a slice of a batch was posted' };
    expect(written()).toEqual([
      { ...posted, batch: 'x-1', asset: 7, slice: 3, post: 9, values: 20, meaning: 'later', code: '503', tookMs: 13 },
      { ...posted, batch: 'x-1', asset: 7, slice: 3, post: 10, values: 20, meaning: 'aborted', tookMs: 0 },
    ]);
    log.settled(BATCH, SLICE, 9);
    log.later(BATCH, SLICE);
    log.divided(BATCH, SLICE, [LONE, { ...LONE, id: 5 }]);
    const facts = { level: DEBUG, batch: 'x-1', asset: 7, slice: 3 };
    expect(written()).toEqual([
      { ...facts, event: 'uplink.settled', post: 9, values: 20, msg: 'values are delivered' },
      { ...facts, event: 'uplink.later', values: 20, msg: 'values wait in the buffer again' },
      { ...facts, event: 'uplink.divided', into: [4, 5], msg: 'a refused slice was divided' },
    ]);
  });

  it('is worth a line to everyone where a series is taken again, and none but at debug where posts grow', () => {
    log.seriesBack(BATCH, [11, 12]);
    log.sizeGrown(100_000);
    expect(written()).toEqual([
      {
        level: INFO,
        event: 'uplink.series_back',
        batch: 'x-1',
        asset: 7,
        series: [11, 12],
        msg: 'a series is taken again',
      },
      { level: DEBUG, event: 'uplink.size_grown', maxBytes: 100_000, msg: 'posts become larger again' },
    ]);
  });
});

/** A kind of trouble: how it is told, its first line, and what is a happening of another kind. */
interface Trouble {
  tell: () => void;
  first: Record<string, unknown>;
  /** Told beside it, each is a first one. */
  others?: (() => void)[];
  /** Told instead of it, each is the same happening. */
  same?: (() => void)[];
}

const named = { batch: 'x-1', asset: 7 };
const QUARANTINE_HINT =
  'See `tagferry buffer quarantine`; mend unit, key or asset in tags.yaml, then `tagferry buffer requeue`.';
const TROUBLES: Record<string, Trouble> = {
  'a refused batch': {
    tell: () => log.refused(BATCH, SLICE, REFUSED, true),
    first: {
      level: WARN,
      event: 'uplink.refused',
      ...named,
      slice: 3,
      status: 400,
      words: 'no such unit',
      values: 20,
      count: 1,
      msg: 'the platform refused a post: it is divided',
    },
    others: [() => log.refused(OTHER, SLICE, REFUSED, true)],
    same: [() => log.refused(BATCH, LONE, { ...REFUSED, status: 422 }, true)],
  },
  'a value in quarantine': {
    tell: () => log.quarantined(BATCH, LONE, REFUSAL),
    first: {
      level: WARN,
      event: 'uplink.quarantined',
      ...named,
      slice: 4,
      series: 11,
      status: 400,
      words: 'no such unit',
      count: 1,
      hint: QUARANTINE_HINT,
      msg: 'a value that the platform refuses is in quarantine',
    },
    others: [
      () => log.quarantined(OTHER, LONE, REFUSAL),
      () => log.quarantined(BATCH, LONE, { ...REFUSAL, status: 422 }),
    ],
    same: [() => log.quarantined(BATCH, { ...LONE, series: [12] }, { ...REFUSAL, message: 'no such key' })],
  },
  'a series that is refused': {
    tell: () => log.seriesWaits(BATCH, 11, REFUSAL, 'refused'),
    first: {
      level: ERROR,
      event: 'uplink.series_waits',
      ...named,
      series: 11,
      status: 400,
      words: 'no such unit',
      count: 1,
      hint: QUARANTINE_HINT,
      msg: 'the platform refuses one value of a series after the other: it waits',
    },
    others: [
      () => log.seriesWaits(OTHER, 11, REFUSAL, 'refused'),
      () => log.seriesWaits(BATCH, 11, { ...REFUSAL, status: 422 }, 'refused'),
      () => log.seriesWaits(BATCH, 11, REFUSAL, 'no-address'),
    ],
    same: [() => log.seriesWaits(BATCH, 12, REFUSAL, 'refused')],
  },
  'a series without an address': {
    tell: () => log.seriesWaits(BATCH, 11, { status: 0, message: 'no instrumentation' }, 'no-address'),
    first: {
      level: ERROR,
      event: 'uplink.no_address',
      ...named,
      series: 11,
      words: 'no instrumentation',
      count: 1,
      hint: 'Name the instrumentation of the tag that lists it in tags.yaml, or mend VALUES_PATH; then reload the service.',
      msg: 'a series has no address: it waits',
    },
    // One setting, whichever series and asset.
    same: [() => log.seriesWaits(OTHER, 12, { status: 0, message: 'no instrumentation' }, 'no-address')],
  },
  'a post that was too large': {
    tell: () => log.sizeLearned(BATCH, 50_000),
    first: {
      level: WARN,
      event: 'uplink.size_learned',
      batch: 'x-1',
      maxBytes: 50_000,
      count: 1,
      msg: 'a post was too large: posts become smaller',
    },
    same: [() => log.sizeLearned(OTHER, 25_000)],
  },
  'an asset that fails': {
    tell: () => log.assetPauses(BATCH, FAILED, 2_000),
    first: {
      level: WARN,
      event: 'uplink.asset_pauses',
      ...named,
      code: '503',
      words: 'busy',
      pauseMs: 2_000,
      count: 1,
      msg: 'a post failed: the asset pauses, the others go on',
    },
    others: [
      () => log.assetPauses(OTHER, FAILED, 2_000),
      () => log.assetPauses(BATCH, { ...FAILED, code: '502', status: 502 }, 2_000),
    ],
    same: [() => log.assetPauses({ ...BATCH, name: 'x-9' }, { ...FAILED, words: 'later' }, 4_000)],
  },
  'a rest after too many requests': {
    tell: () => log.rest(BATCH, 15_000),
    first: {
      level: WARN,
      event: 'uplink.rest',
      ...named,
      waitMs: 15_000,
      count: 1,
      msg: 'the platform had too many requests: all posts wait',
    },
    same: [() => log.rest(OTHER, 10_000)],
  },
  'an outage': {
    tell: () => log.unavailable(outageOf({ nextTryAtMs: clock.monotonicMs() + 999.6 }), 'unavailable', BATCH.name),
    first: {
      level: WARN,
      event: 'uplink.away',
      batch: 'x-1',
      code: '503',
      words: 'busy',
      attempts: 1,
      nextTryMs: 1_000,
      count: 1,
      msg: 'the platform is away: values stay in the buffer',
    },
    others: [() => log.unavailable(outageOf({ code: 'platform.dns' }), 'unavailable', 'x-1')],
    same: [() => log.unavailable(outageOf({ words: 'down' }), 'unavailable', undefined)],
  },
  'a spent quota': {
    tell: () => log.unavailable(outageOf({ code: '402', words: 'spent' }), 'quota', BATCH.name),
    first: {
      level: ERROR,
      event: 'uplink.quota',
      batch: 'x-1',
      code: '402',
      words: 'spent',
      attempts: 1,
      nextTryMs: 1_000,
      count: 1,
      hint: 'Raise the quota of the connect subscription, or wait for its next period; REQUESTS_PER_DAY keeps below it.',
      msg: 'the quota of API calls is spent: all posts pause',
    },
  },
};

describe.each(Object.entries(TROUBLES))('%s', (_name, { tell, first, others = [], same = [] }) => {
  it('is told whole at once, then loudly whenever it has doubled, else at debug without a count', () => {
    tell();
    expect(written()).toEqual([first]);
    for (let turn = 2; turn <= 9; turn++) tell();
    const { level: loud, count: _, ...facts } = first;
    expect(lines[1]).toEqual({ ...facts, level: DEBUG });
    expect(loudness()).toEqual([`${loud} 2`, DEBUG, `${loud} 4`, DEBUG, DEBUG, DEBUG, `${loud} 8`, DEBUG]);
  });

  it('is told loudly again after ten minutes', async () => {
    for (let turn = 1; turn <= 5; turn++) tell();
    written();
    await clock.advance(10 * MINUTE - 1);
    tell();
    await clock.advance(1);
    tell();
    expect(loudness()).toEqual([DEBUG, `${first.level} 7`]);
  });

  it('is counted with what is the same happening, and apart from every other', () => {
    for (const other of [tell, ...others]) other();
    expect(written().map(({ count }) => count)).toEqual([1, ...others.map(() => 1)]);
    for (const [index, one] of same.entries()) {
      for (let turn = 0; turn < 2 ** index; turn++) one();
      expect(written().at(-1)).toMatchObject({ count: 2 ** (index + 1) });
    }
  });
});

it('troubles of every kind are counted apart, of one asset too', () => {
  const kinds = Object.values(TROUBLES);
  for (const { tell } of kinds) tell();
  expect(written()).toEqual(kinds.map(({ first }) => first));
});

describe('trouble that is over', () => {
  it('of an asset makes its next failure a first one, of whichever code, and no other asset’s', () => {
    const failing = [7, 71, 8].flatMap((asset) =>
      [FAILED, { ...FAILED, code: '502' }].map((verdict) => ({ asset, verdict })),
    );
    const fail = () => {
      for (const { asset, verdict } of failing) log.assetPauses({ name: 'x-1', asset }, verdict, 500);
    };
    fail();
    log.rest(BATCH, 500);
    log.refused(BATCH, SLICE, REFUSED, true);
    written();
    log.assetBack(7);
    expect(written()).toEqual([]);
    fail();
    log.rest(BATCH, 500);
    log.refused(BATCH, SLICE, REFUSED, true);
    expect(loudness()).toEqual([1, 1, 2, 2, 2, 2, 2, 2].map((count) => `${WARN} ${count}`));
  });

  it('of the platform is told with how long it lasted, and makes the next outage a first one', async () => {
    const away = () => {
      for (const code of ['503', 'platform.dns']) log.unavailable(outageOf({ code }), 'unavailable', undefined);
      log.assetPauses(BATCH, FAILED, 500);
    };
    away();
    const ended = outageOf({ attempts: 5 });
    await clock.advance(90_000.6);
    written();
    log.available(ended);
    const back = { level: INFO, event: 'uplink.back', code: '503', attempts: 5, forMs: 90_001 };
    expect(written()).toEqual([{ ...back, msg: 'the platform takes values again' }]);
    away();
    expect(loudness()).toEqual([1, 1, 2].map((count) => `${WARN} ${count}`));
  });
});

describe('an outage', () => {
  it.each([
    ['unavailable', 'uplink.away', 'the platform is away: values stay in the buffer', WARN],
    ['foreign', 'uplink.away', "something answers in the platform's place: values stay in the buffer", WARN],
    ['signed-out', 'uplink.signed_out', 'there is no session that the platform takes: values stay in the buffer', WARN],
    [
      'no-access',
      'uplink.none_visible',
      'the platform shows this user no asset of those posted: values stay in the buffer',
      WARN,
    ],
    ['refused', 'uplink.all_refused', 'the platform refuses whatever is posted: values stay in the buffer', WARN],
    ['quota', 'uplink.quota', 'the quota of API calls is spent: all posts pause', ERROR],
  ] as const)('that is %s is told as %s', (why, event, msg, level) => {
    log.unavailable(outageOf({ attempts: 3 }), why, undefined);
    const facts = { code: '503', words: 'busy', attempts: 3, nextTryMs: 1_000, count: 1 };
    const hint = expect.stringContaining('Raise the quota');
    expect(written()).toEqual([{ level, event, ...facts, ...(why === 'quota' ? { hint } : {}), msg }]);
  });

  it('whose next try is due already waits for nothing', () => {
    for (const byMs of [-1, 0, 0.6]) {
      log.unavailable(outageOf({ nextTryAtMs: clock.monotonicMs() + byMs }), 'unavailable', undefined);
    }
    expect(written().map(({ nextTryMs }) => nextTryMs)).toEqual([0, 0, 1]);
  });
});

describe('a slice of a batch that was refused before', () => {
  it('is the same happening: at debug, and not counted', () => {
    log.refused(BATCH, SLICE, REFUSED, true);
    for (let turn = 0; turn < 5; turn++) log.refused(BATCH, LONE, REFUSED, false);
    log.refused(BATCH, SLICE, REFUSED, true);
    expect(loudness()).toEqual([`${WARN} 1`, ...Array(5).fill(DEBUG), `${WARN} 2`]);
  });
});

describe('a store that fails', () => {
  it('is told by its words, at once, whenever it has doubled and after ten minutes, and not at all between', async () => {
    const said = { level: ERROR, event: 'uplink.store_failed', msg: 'the store did not answer as it should' };
    for (let turn = 0; turn < 5; turn++) log.storeFailed(new Error('the disk\nis away'));
    log.storeFailed('another thing');
    await clock.advance(10 * MINUTE);
    log.storeFailed(new Error('the disk is away'));
    expect(written()).toEqual([
      ...[1, 2, 4].map((count) => ({ ...said, error: 'the disk is away', count })),
      { ...said, error: 'another thing', count: 1 },
      { ...said, error: 'the disk is away', count: 6 },
    ]);
  });
});
