import { describe, expect, it } from 'vitest';
import type { Batch } from '../../src/buffer/client/lanes.ts';
import { type DeliveryState, type Slices, slicesIn, slicesOf } from '../../src/uplink/batch-delivery.ts';
import { decide, type Known, type Outcome, type Step } from '../../src/uplink/outcome.ts';
import { MAX_LONE_REFUSALS } from '../../src/uplink/series-waits.ts';
import { type Meaning, VERDICTS } from '../../src/uplink/verdict.ts';
import { batch } from './effects-world.ts';

/** Whatever a batch meets and whatever is known: none of its slices is lost, doubled or overtaken, and a recall is not forgotten. */
const REFUSAL = { refusal: { status: 400, message: 'no' }, at: 5 };
const [SLICE, LONE] = [batch(1, 6, [1, 2]), batch(1, 1, [1])];
const MEANINGS = [...new Set(VERDICTS.map(({ meaning }) => meaning))];

const SLICES: readonly Slices[] = [
  { ...slicesOf(batch(2)), waiting: [] },
  { ...slicesOf(batch(2)), isDivided: true },
  {
    waiting: [batch(2, 1, [1]), batch(3, 4, [1]), batch(4, 4, [2]), batch(5, 4, [1, 2])],
    deferred: [
      { batch: batch(6, 1, [1]), ...REFUSAL },
      { batch: batch(7, 1, [2]), ...REFUSAL, at: 8 },
    ],
    shelved: [batch(8, 2, [1]), batch(9, 2, [2])],
    again: new Set([2]),
    loneRefusals: 2,
    taken: 1,
    isDivided: true,
  },
  { ...slicesOf(batch(2)), waiting: [], shelved: [batch(8, 2, [1])], again: new Set([1]), isDivided: true },
  {
    ...slicesOf(batch(2)),
    waiting: [],
    deferred: [{ batch: batch(6, 1, [1]), ...REFUSAL }],
    shelved: [batch(8, 2, [1])],
    loneRefusals: 31,
    isDivided: true,
  },
];

const STATES = SLICES.flatMap((slices) =>
  (['next', 'return'] as const).flatMap((after): DeliveryState[] => [
    { kind: 'paying', after, slices: { ...slices, waiting: [SLICE, ...slices.waiting] } },
    { kind: 'posting', after, slices, slice: SLICE },
    { kind: 'posting', after, slices, slice: LONE },
    { kind: 'dividing', after, slices, slice: SLICE, refusal: REFUSAL },
    { kind: 'dividing', after, slices, slice: LONE, refusal: REFUSAL },
    { kind: 'deciding', after, slices },
  ]),
).concat(
  SLICES.flatMap((slices): DeliveryState[] => [
    { kind: 'ready', slices, sinceMs: 40 },
    { kind: 'parked', slices },
  ]),
  [{ kind: 'taking', after: 'next' }, { kind: 'taking', after: 'return' }, { kind: 'returning' }, { kind: 'over' }],
);

const OUTCOMES: readonly Outcome[] = [
  { kind: 'cut', batch: SLICE },
  { kind: 'nothing' },
  { kind: 'unaddressed', batch: SLICE },
  { kind: 'turn' },
  { kind: 'unsent', paid: false },
  { kind: 'unsent', paid: true },
  { kind: 'sent' },
  ...MEANINGS.map((meaning): Outcome => {
    const verdict = { meaning, code: '400', status: 400, words: 'no' };
    return { kind: 'answered', answer: { post: 9, startedMs: 50, verdict, askedMs: 0, at: 10 } };
  }),
  { kind: 'broken off' },
  { kind: 'divided', slices: [batch(11, 3, [1]), batch(12, 3, [2])] },
  { kind: 'divided', slices: [] },
  { kind: 'done' },
  { kind: 'look' },
  { kind: 'recall' },
];

const BOOLEANS = [false, true];
const KNOWN: readonly Known[] = BOOLEANS.flatMap((isEveryones) =>
  BOOLEANS.flatMap((isAlone) =>
    [-1, 5, 8].flatMap((takenSince) =>
      [MAX_LONE_REFUSALS - 1, MAX_LONE_REFUSALS].map((loneRefusals) => ({
        nowMs: 100,
        isUnavailable: false,
        isEveryones: () => isEveryones,
        isAlone: () => isAlone,
        hasTakenSince: (at: number) => takenSince >= at,
        loneRefusals: () => loneRefusals,
        isAssetHeld: () => false,
        areSeriesHeld: () => false,
      })),
    ),
  ),
);

interface Case {
  state: DeliveryState;
  outcome: Outcome;
  step: Step;
}

/** What is known is asked where something is decided. */
const knownBeside = ({ kind }: Outcome) =>
  ['answered', 'divided', 'done', 'look'].includes(kind) ? KNOWN : KNOWN.slice(0, 1);

const FACTS = { name: 'x-1', asset: 7, lane: 'live', kind: 'live', probe: undefined, trial: false } as const;

/** Every outcome that a batch in any of the states can meet, with whatever is known. */
function cases(): Case[] {
  return STATES.flatMap((state) =>
    OUTCOMES.filter((outcome) => canMeet(state, outcome)).flatMap((outcome) =>
      knownBeside(outcome).map((known) => ({ state, outcome, step: decide({ ...FACTS, state }, outcome, known) })),
    ),
  );
}

const MEETS: Record<DeliveryState['kind'], readonly Outcome['kind'][]> = {
  taking: ['cut', 'nothing', 'unaddressed'],
  paying: ['unsent', 'sent'],
  posting: ['answered', 'broken off'],
  dividing: ['divided'],
  deciding: ['done'],
  ready: ['turn'],
  parked: [],
  returning: [],
  over: [],
};
const canMeet = ({ kind }: DeliveryState, outcome: Outcome) =>
  outcome.kind === 'look' || outcome.kind === 'recall' || MEETS[kind].includes(outcome.kind);

/** All that a state has of its batch, by the order in which it may be posted again. */
function inside(state: DeliveryState): Batch[] {
  const { deferred, shelved, waiting } = slicesIn(state);
  const busy = 'slice' in state ? [state.slice] : [];
  return [...deferred.map((one) => one.batch), ...busy, ...shelved, ...waiting];
}

const idsOf = (slices: readonly Batch[]) =>
  slices
    .map(({ id }) => id)
    .sort((a, b) => a - b)
    .join();

/** What it has before, with what it is given. */
function broughtOrHad({ state, outcome }: Case): Batch[] {
  if (outcome.kind === 'cut' || outcome.kind === 'unaddressed') return [outcome.batch];
  if (outcome.kind !== 'divided' || outcome.slices.length === 0) return inside(state);
  return inside(state).flatMap((slice) => ('slice' in state && slice === state.slice ? outcome.slices : slice));
}

/** What it gives away. */
function givenAway({ step }: Case): Batch[] {
  return step.effects.flatMap((effect) => {
    if (effect.do === 'release') return effect.slices;
    return effect.do === 'settle' || effect.do === 'quarantine' ? [effect.slice] : [];
  });
}

/** Those of all cases of which this does not hold, in words. */
function wrong(holds: (one: Case) => boolean): string[] {
  return cases()
    .filter((one) => !holds(one))
    .map(({ state, outcome, step }) => JSON.stringify({ state, outcome, step }));
}

describe('a batch', () => {
  it('has or ends each of its slices once', () => {
    expect(cases().length).toBeGreaterThan(5_000);
    expect(wrong((one) => idsOf([...inside(one.step.state), ...givenAway(one)]) === idsOf(broughtOrHad(one)))).toEqual(
      [],
    );
  });

  it('ends once it has nothing left, and not before', () => {
    const isRight = ({ state, step: { state: after, effects } }: Case) => {
      const ends = effects.filter((effect) => effect.do === 'end').length;
      const isEnding = after.kind === 'returning' && state.kind !== 'returning';
      return isEnding ? ends === 1 && effects.at(-1)?.do === 'end' : ends === 0;
    };
    expect(wrong(isRight)).toEqual([]);
  });

  it('posts nothing more once it is recalled', () => {
    const isRight = ({ state, outcome, step: { state: after } }: Case) => {
      const isRecalled = outcome.kind === 'recall' || ('after' in state && state.after === 'return');
      return !isRecalled || ('after' in after ? after.after === 'return' : ['returning', 'over'].includes(after.kind));
    };
    expect(wrong(isRight)).toEqual([]);
  });

  it('lets no slice of a series overtake an older one of it, but a lone one that is tried again', () => {
    const isRight = (one: Case) => {
      const order = broughtOrHad(one).map(({ id }) => id);
      const { waiting, again } = slicesIn(one.step.state);
      return [1, 2].every((series) => {
        const ids = waiting.filter(({ series: of, id }) => of.includes(series) && !again.has(id)).map(({ id }) => id);
        return ids.join() === order.filter((id) => ids.includes(id)).join();
      });
    };
    expect(wrong(isRight)).toEqual([]);
  });
});

describe('a failed post', () => {
  const divided: DeliveryState = { kind: 'posting', after: 'next', slices: SLICES[1]!, slice: SLICE };
  const failed = (meaning: Meaning, isEveryones: boolean) => {
    const verdict = { meaning, code: '599', status: 599, words: 'no' };
    const outcome: Outcome = { kind: 'answered', answer: { post: 9, startedMs: 50, verdict, askedMs: 300, at: 10 } };
    const known = { ...KNOWN[0]!, isEveryones: () => isEveryones };
    return { ...decide({ ...FACTS, state: divided }, outcome, known), answer: outcome.answer };
  };
  const BACK = [{ do: 'release', slices: [SLICE, batch(2)] }, { do: 'end' }];

  it.each([
    ['unreachable', 'unavailable'],
    ['session', 'signed-out'],
    ['quota', 'quota'],
  ] as const)('that is none of the asset’s, %s, sends all of a divided batch back', (meaning, why) => {
    const { state, effects, answer } = failed(meaning, false);
    const failure = { code: '599', words: 'no' };
    const unavailable = { do: 'unavailable', failure, why, posted: answer, minMs: 0 };
    expect([state, effects]).toEqual([{ kind: 'returning' }, [unavailable, ...BACK]]);
  });

  it.each([
    ['later', 'unavailable', { code: '599', words: 'no' }, 300],
    ['not-understood', 'foreign', { code: '599', words: 'no', isForeign: true }, 300],
    ['no-access', 'no-access', { code: '599', words: 'no' }, 0],
  ] as const)(
    'of kind %s is the asset’s or everyone’s; a divided batch goes back either way',
    (meaning, why, failure, minMs) => {
      const [own, all] = [failed(meaning, false), failed(meaning, true)];
      const denied = { do: 'deny access', status: 404, series: undefined, instrumentation: undefined };
      const verdict = own.answer.verdict;
      const unavailable = { do: 'unavailable', failure, why, posted: all.answer, minMs };
      const isDenied = meaning === 'no-access';
      expect(own.effects).toEqual([isDenied ? denied : { do: 'pause asset', verdict, minMs: 300 }, ...BACK]);
      expect(all.effects).toEqual([...(isDenied ? [denied, { do: 'retry denied soon' }] : []), unavailable, ...BACK]);
      expect([own.state, all.state]).toEqual([{ kind: 'returning' }, { kind: 'returning' }]);
    },
  );
});
