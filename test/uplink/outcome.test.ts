import { describe, expect, it } from 'vitest';
import type { Batch } from '../../src/buffer/client/lanes.ts';
import { type BatchDelivery, type DeliveryState, type Slices, slicesOf } from '../../src/uplink/batch-delivery.ts';
import { type Answered, decide, type Effect, faultOf, type Known, type Outcome } from '../../src/uplink/outcome.ts';
import { MAX_LONE_REFUSALS } from '../../src/uplink/series-waits.ts';
import { type Meaning, VERDICTS, type Verdict } from '../../src/uplink/verdict.ts';

function batch(id: number, values = 10, series: readonly number[] = [1, 2]): Batch {
  return { id, asset: 7, series, values, liveValues: values, backlogValues: 0, body: new Uint8Array(100) };
}

const BATCH = batch(1);
const REFUSAL = { refusal: { status: 400, message: 'no such unit' }, at: 5 };
const SLICES: Slices = { ...slicesOf(batch(2)), isDivided: true };

const STATES = {
  taking: { kind: 'taking', after: 'next' },
  paying: { kind: 'paying', after: 'next', slices: slicesOf(BATCH) },
  posting: { kind: 'posting', after: 'next', slices: { ...SLICES, isDivided: false }, slice: BATCH },
  dividing: { kind: 'dividing', after: 'next', slices: SLICES, slice: BATCH, refusal: REFUSAL },
  deciding: { kind: 'deciding', after: 'next', slices: SLICES },
  ready: { kind: 'ready', slices: SLICES, sinceMs: 40 },
  parked: { kind: 'parked', slices: { ...SLICES, waiting: [], deferred: [{ batch: batch(3, 1, [1]), ...REFUSAL }] } },
  returning: { kind: 'returning' },
  over: { kind: 'over' },
} as const satisfies { [Kind in DeliveryState['kind']]: DeliveryState & { kind: Kind } };

const MEANINGS = [...new Set(VERDICTS.map(({ meaning }) => meaning))];

function answer(meaning: Meaning, verdict: Partial<Verdict> = {}): Outcome & { kind: 'answered' } {
  const said = { meaning, code: '400', status: 400, words: 'no such unit', ...verdict };
  const answered: Answered = { post: 9, startedMs: 50, verdict: said, askedMs: 300, at: 10 };
  return { kind: 'answered', answer: answered };
}

const OUTCOMES: Record<string, Outcome> = {
  cut: { kind: 'cut', batch: BATCH },
  nothing: { kind: 'nothing' },
  unaddressed: { kind: 'unaddressed', batch: BATCH },
  turn: { kind: 'turn' },
  unsent: { kind: 'unsent', paid: false },
  'unsent, paid': { kind: 'unsent', paid: true },
  sent: { kind: 'sent' },
  ...Object.fromEntries(MEANINGS.map((meaning) => [meaning, answer(meaning)])),
  'broken off': { kind: 'broken off' },
  divided: { kind: 'divided', slices: [batch(11), batch(12)] },
  'divided into nothing': { kind: 'divided', slices: [] },
  done: { kind: 'done' },
  look: { kind: 'look' },
  recall: { kind: 'recall' },
};

/** Nothing is known that would change what an answer means: others post, nothing was taken since. */
function known(facts: Partial<Known> = {}): Known {
  return {
    nowMs: 100,
    isUnavailable: false,
    isEveryones: () => false,
    isAlone: () => false,
    hasTakenSince: () => false,
    loneRefusals: () => 0,
    isAssetHeld: () => false,
    areSeriesHeld: () => false,
    ...facts,
  };
}

function delivery(state: DeliveryState, facts: Partial<BatchDelivery> = {}): BatchDelivery {
  return { name: 'x-1', asset: 7, lane: 'live', kind: 'live', probe: undefined, trial: false, ...facts, state };
}

const PROBE: Partial<BatchDelivery> = { kind: 'probe', probe: { asset: 7, onlySeries: [1], maxValues: 1 } };

/** `state: effect, effect`; ids of slices where it matters. */
function words({ state, effects }: { state: DeliveryState; effects: readonly Effect[] }): string {
  const after = 'after' in state && state.after === 'return' ? ', then return' : '';
  return `${state.kind}${after}: ${effects.map(effectWords).join(', ')}`;
}

function effectWords(effect: Effect): string {
  if (effect.do === 'release') return `release ${effect.slices.map(({ id }) => id).join('+')}`;
  if (effect.do === 'unavailable') return `unavailable (${effect.why})`;
  if (effect.do === 'hold series') return `hold series (${effect.why})`;
  return String(effect.do);
}

function stepOf(state: DeliveryState, outcome: Outcome, facts: Partial<Known> = {}, of: Partial<BatchDelivery> = {}) {
  return decide(delivery(state, of), outcome, known(facts));
}

/** What each state makes of each outcome; what stands in no row cannot be. */
const TABLE: Record<DeliveryState['kind'], Record<string, string>> = {
  taking: {
    cut: 'paying: ',
    nothing: 'returning: find nothing, end',
    unaddressed: 'returning: hold series (no-address), release 1, end',
    recall: 'taking, then return: ',
  },
  paying: {
    unsent: 'returning: release 1, end',
    'unsent, paid': 'returning: refund request, release 1, end',
    sent: 'posting: ',
    recall: 'paying, then return: ',
  },
  posting: {
    delivered: 'deciding: credit, settle, look at parked, decide next',
    refused: 'dividing: tell refusal, divide',
    'no-access': 'returning: deny access, release 1+2, end',
    session: 'returning: unavailable (signed-out), release 1+2, end',
    quota: 'returning: unavailable (quota), release 1+2, end',
    rest: 'returning: log rest, release 1+2, end',
    'not-understood': 'returning: pause asset, release 1+2, end',
    later: 'returning: pause asset, release 1+2, end',
    unreachable: 'returning: unavailable (unavailable), release 1+2, end',
    'broken off': 'returning: release 1+2, end',
    recall: 'posting, then return: ',
  },
  dividing: {
    divided: 'deciding: tell division, decide next',
    'divided into nothing': 'deciding: count lone refusal, decide next',
    recall: 'dividing, then return: ',
  },
  deciding: { done: 'ready: ', recall: 'deciding, then return: ' },
  ready: { turn: 'paying: ', look: 'ready: ', recall: 'returning: release 2, end' },
  parked: { look: 'parked: ', recall: 'returning: release 3, end' },
  returning: { recall: 'returning: ' },
  over: { recall: 'over: ' },
};
/** Whoever is busy looks when that is over. */
for (const [kind, row] of Object.entries(TABLE)) row.look ??= `${kind}: `;

describe('every state and every outcome', () => {
  const pairs = Object.entries(STATES).flatMap(([kind, state]) =>
    Object.entries(OUTCOMES).map(([name, outcome]) => ({ kind: kind as DeliveryState['kind'], state, name, outcome })),
  );

  it.each(pairs)('$kind, $name', ({ kind, state, name, outcome }) => {
    const expected = TABLE[kind][name];
    if (expected === undefined) expect(() => stepOf(state, outcome)).toThrow(`that is ${kind} cannot meet`);
    else expect(words(stepOf(state, outcome))).toBe(expected);
  });

  it('leave the state that was handed in as it was', () => {
    const before = structuredClone(STATES);
    for (const { kind, state, name, outcome } of pairs) if (TABLE[kind][name]) stepOf(state, outcome);
    expect(STATES).toEqual(before);
  });
});

describe('each row of docs/verdicts.md', () => {
  it.each(VERDICTS)('$answer: $values', ({ meaning, values }) => {
    const effects = stepOf(STATES.posting, answer(meaning)).effects.map((effect) => effect.do);
    const of = (...names: string[]) => names.filter((name) => effects.includes(name as Effect['do']));
    // One way for each value: settled, divided, or kept.
    const expected = values.startsWith('settled') ? 'settle' : values.startsWith('kept') ? 'release' : 'divide';
    expect(of('settle', 'divide', 'quarantine', 'release')).toEqual([expected]);
  });

  it('counts as a trouble of the kind that tells one asset from all, where it may be either', () => {
    const faults = MEANINGS.map((meaning) => [meaning, faultOf(meaning)]);
    expect(Object.fromEntries(faults)).toEqual({
      delivered: undefined,
      refused: 'refused',
      'no-access': 'no-access',
      session: undefined,
      quota: undefined,
      rest: undefined,
      'not-understood': 'later',
      later: 'later',
      unreachable: undefined,
    });
  });
});

describe('what is known beside an answer', () => {
  const posting = STATES.posting;
  const everyones = { isEveryones: () => true };

  it.each<[string, Meaning, Partial<Known>, Partial<BatchDelivery>, string]>([
    ['a failure of everyone is an outage', 'later', everyones, {}, 'unavailable (unavailable)'],
    ['so is one more during an outage', 'later', { isUnavailable: true }, {}, 'unavailable (unavailable)'],
    ["a page in the platform's place is told as one", 'not-understood', everyones, {}, 'unavailable (foreign)'],
    [
      'no access of everyone is an outage, and all are tried soon',
      'no-access',
      everyones,
      {},
      'deny access, retry denied soon, unavailable (no-access)',
    ],
    [
      'no access of a try during an outage shows that the platform is there',
      'no-access',
      {},
      { trial: true },
      'deny access, available',
    ],
    ['a rest after a try does so too', 'rest', {}, { trial: true }, 'available, log rest'],
    ['a rest leaves a probe due', 'rest', {}, PROBE, 'log rest, probe is due again'],
    ['so does a spent quota', 'quota', {}, PROBE, 'unavailable (quota), probe is due again'],
    ['so does a refused token', 'session', {}, PROBE, 'unavailable (signed-out), probe is due again'],
    ['so does an outage', 'later', everyones, PROBE, 'unavailable (unavailable), probe is due again'],
    ['a failure of the asset alone does not', 'later', {}, PROBE, 'pause asset'],
    ['no access does not', 'no-access', {}, PROBE, 'deny access'],
  ])('%s', (_name, meaning, facts, of, effects) => {
    expect(words(stepOf(posting, answer(meaning), facts, of))).toBe(`returning: ${effects}, release 1+2, end`);
  });

  it('no session is no outage of the platform, and costs no request', () => {
    const step = stepOf(posting, answer('unreachable', { code: 'platform.no_session' }));
    expect(words(step)).toBe('returning: unavailable (signed-out), release 1+2, end');
  });

  it('what a 5xx asks to wait is waited, by the asset or by all', () => {
    expect(stepOf(posting, answer('later')).effects[0]).toMatchObject({ do: 'pause asset', minMs: 300 });
    expect(stepOf(posting, answer('later'), everyones).effects[0]).toMatchObject({ do: 'unavailable', minMs: 300 });
    expect(stepOf(posting, answer('quota')).effects[0]).toMatchObject({ do: 'unavailable', minMs: 0 });
  });

  it('a rest lets the slices of a divided batch wait where they are, in their order', () => {
    const divided = { ...posting, slices: SLICES };
    const step = stepOf(divided, answer('rest'));
    expect(words(step)).toBe('deciding: log rest, decide next');
    expect(step.state).toMatchObject({ slices: { waiting: [{ id: 1 }, { id: 2 }] } });
    expect(words(stepOf({ ...divided, after: 'return' }, answer('rest')))).toBe(
      'deciding, then return: log rest, decide next',
    );
  });

  it('a hold is lifted by what is delivered of it', () => {
    for (const step of [
      stepOf(posting, answer('delivered'), { isAssetHeld: () => true }),
      stepOf(posting, answer('delivered'), {}, PROBE),
    ]) {
      expect(words(step)).toBe('deciding: credit, settle, allow asset, look at parked, decide next');
      expect(step.effects[2]).toMatchObject({ series: [1, 2] });
    }
  });

  it.each([
    [403, true, { status: 403, series: [1] }],
    [404, false, { status: 404, series: undefined }],
  ])('a probe that is answered %d says something about what it tried alone', (status, areHeld, denied) => {
    const step = stepOf(posting, answer('no-access', { status }), { areSeriesHeld: () => areHeld }, PROBE);
    expect(step.effects[0]).toMatchObject({ do: 'deny access', ...denied });
  });

  it('a probe goes out with its first post alone', () => {
    expect(words(stepOf(STATES.paying, { kind: 'sent' }, {}, PROBE))).toBe('posting: probe goes out');
    const later = { ...STATES.paying, slices: SLICES };
    expect(words(stepOf(later, { kind: 'sent' }, {}, PROBE))).toBe('posting: ');
  });
});

describe('what is refused', () => {
  const lone = batch(4, 1, [1]);
  const posting: DeliveryState = { ...STATES.posting, slice: lone, slices: SLICES };
  const refused = answer('refused');

  it('is told as a new happening once for a batch', () => {
    const [first] = stepOf(STATES.posting, refused).effects;
    const [later] = stepOf({ ...STATES.posting, slices: SLICES }, refused).effects;
    expect([first, later]).toMatchObject([{ isFirst: true }, { isFirst: false }]);
  });

  it('teaches a size where it was 413', () => {
    const step = stepOf(STATES.posting, answer('refused', { status: 413 }));
    expect(words(step)).toBe('dividing: tell refusal, learn size, divide');
    expect(step.effects[1]).toMatchObject({ bytes: 100 });
  });

  it('is not divided any more once the batch is recalled', () => {
    const step = stepOf({ ...STATES.posting, after: 'return' }, refused);
    expect(words(step)).toBe('returning: tell refusal, release 1+2, end');
  });

  it('waits in its place, divided, before what comes after it', () => {
    const { state } = stepOf(STATES.dividing, OUTCOMES.divided!);
    expect(state).toMatchObject({ slices: { isDivided: true, waiting: [{ id: 11 }, { id: 12 }, { id: 2 }] } });
  });

  it('alone is deferred, with the number of the next post', () => {
    const step = stepOf(posting, refused);
    expect(words(step)).toBe('deciding: tell refusal, count lone refusal, decide next');
    const deferred = [{ batch: lone, refusal: { status: 400, message: 'no such unit' }, at: 10 }];
    expect(step.state).toMatchObject({ slices: { deferred, loneRefusals: 1, waiting: [{ id: 2 }] } });
  });

  it('alone and too often shelves what waits of its series, of no other', () => {
    const slices = { ...SLICES, waiting: [batch(5, 3, [1]), batch(6, 3, [2]), batch(7, 3, [1, 2])] };
    const facts = (count: number) => ({ loneRefusals: () => count });
    const enough = stepOf({ ...posting, slices }, refused, facts(MAX_LONE_REFUSALS - 1)).state;
    expect(enough).toMatchObject({ slices: { shelved: [{ id: 5 }], waiting: [{ id: 6 }, { id: 7 }] } });
    const notYet = stepOf({ ...posting, slices }, refused, facts(MAX_LONE_REFUSALS - 2)).state;
    expect(notYet).toMatchObject({ slices: { shelved: [], waiting: [{ id: 5 }, { id: 6 }, { id: 7 }] } });
  });

  it('alone a second time goes to quarantine; enough of a series, and the series waits', () => {
    const slices = { ...SLICES, again: new Set([4]), waiting: [batch(5, 3, [1]), batch(6, 3, [2])] };
    const twice = { ...posting, slices };
    expect(words(stepOf(twice, refused))).toBe('deciding: tell refusal, quarantine, decide next');
    const enough = stepOf(twice, refused, { loneRefusals: () => MAX_LONE_REFUSALS });
    expect(words(enough)).toBe('deciding: tell refusal, quarantine, hold series (refused), release 5, decide next');
    expect(enough.state).toMatchObject({ slices: { waiting: [{ id: 6 }] } });
    const undecided = { ...slices, deferred: [{ batch: batch(8, 1, [1]), ...REFUSAL }] };
    const step = stepOf({ ...twice, slices: undecided }, refused, { loneRefusals: () => MAX_LONE_REFUSALS });
    expect(words(step)).toBe('deciding: tell refusal, quarantine, decide next');
  });
});

describe('what comes after a slice', () => {
  const done: Outcome = { kind: 'done' };
  const deferred = [{ batch: batch(4, 1, [1]), ...REFUSAL }];
  const shelved = [batch(5, 3, [1])];
  const left = (slices: Partial<Slices>): DeliveryState => ({
    kind: 'deciding',
    after: 'next',
    slices: { ...SLICES, waiting: [], ...slices },
  });
  const hopeless = { loneRefusals: () => MAX_LONE_REFUSALS };

  it.each<[string, Partial<Slices>, Partial<Known>, string]>([
    ['nothing is left', {}, {}, 'returning: end'],
    ['a slice waits', { waiting: [BATCH] }, {}, 'ready: '],
    ['only what was refused alone is left', { deferred }, {}, 'parked: '],
    [
      'everyone is refused',
      { deferred },
      { isEveryones: () => true },
      'returning: unavailable (refused), release 4, end',
    ],
    ['something was taken since', { deferred }, { hasTakenSince: (at) => at === REFUSAL.at }, 'ready: '],
    ['only shelved slices are left', { shelved }, hopeless, 'ready: '],
    ['shelved slices wait for what was refused alone', { shelved, deferred }, hopeless, 'parked: '],
    ['something of a shelved series was taken', { shelved, deferred }, {}, 'ready: '],
    ['nobody else is there, and a slice was taken', { deferred, taken: 1 }, { isAlone: () => true }, 'ready: '],
    [
      'nobody else is there, and more can be tried',
      { deferred, shelved, loneRefusals: 31 },
      { isAlone: () => true, ...hopeless },
      'ready: ',
    ],
    [
      'nobody else is there, and enough was tried',
      { deferred, shelved, loneRefusals: 32 },
      { isAlone: () => true, ...hopeless },
      'returning: unavailable (refused), release 4+5, end',
    ],
    [
      'nobody else is there, nor more to try',
      { deferred },
      { isAlone: () => true },
      'returning: unavailable (refused), release 4, end',
    ],
  ])('%s', (_name, slices, facts, expected) => {
    expect(words(stepOf(left(slices), done, facts))).toBe(expected);
  });

  it('is nothing once the batch is recalled', () => {
    const state = { ...left({ deferred, shelved, waiting: [BATCH] }), after: 'return' } as DeliveryState;
    expect(words(stepOf(state, done))).toBe('returning: release 4+5+1, end');
  });

  it('is the end of an outage where a try was refused, but not as everyone was', () => {
    expect(words(stepOf(left({ deferred }), done, {}, { trial: true }))).toBe('parked: available');
  });

  it('is an outage with the words that the platform refused with, whoever asks', () => {
    const { effects } = stepOf(left({ deferred }), done, { isEveryones: (fault) => fault === 'refused' });
    const failure = { code: '400', words: 'no such unit' };
    expect(effects[0]).toEqual({ do: 'unavailable', failure, why: 'refused', posted: undefined, minMs: 0 });
  });

  it('keeps its place among those that wait for their turn', () => {
    expect(stepOf(STATES.ready, { kind: 'look' })).toMatchObject({ state: { sinceMs: 40 } });
    expect(stepOf(STATES.parked, { kind: 'look' }, { hasTakenSince: () => true })).toMatchObject({
      state: { kind: 'ready', sinceMs: 100, slices: { deferred: [], waiting: [{ id: 3 }] } },
    });
  });

  it('is posted a second time before everything else, in order', () => {
    const two = [...deferred, { batch: batch(6, 1, [2]), ...REFUSAL, at: 8 }];
    const { state } = stepOf(left({ deferred: two, waiting: [BATCH] }), done, { hasTakenSince: (at) => at <= 8 });
    expect(state).toMatchObject({ slices: { waiting: [{ id: 4 }, { id: 6 }, { id: 1 }], again: new Set([4, 6]) } });
  });
});
