/**
 * What follows from what a batch met: `(state, outcome) -> state and effects`. Pure: what the uplink knows beside the batch is
 * handed in. effects.ts carries out what is decided here, and hands in what comes of it. test/uplink/outcome.test.ts has every
 * pair.
 *
 * A value goes to quarantine when it was refused alone twice and something was taken in between. That tells a poisoned
 * value from a platform (or a proxy) that refuses everything for a while, which is an outage: then nothing goes to
 * quarantine and everything goes back to its place. A gateway whose only asset is in question has nobody else to ask:
 * there it is enough that another slice of the same batch was taken before, and where none was, more of the series is
 * tried before it counts as an outage.
 */
import type { Batch, Refusal } from '../buffer/client/lanes.ts';
import {
  type After,
  allOf,
  type BatchDelivery,
  type DeliveryState,
  hasUndecided,
  type LoneRefusal,
  putBack,
  type Slices,
  shelve,
  slicesIn,
  slicesOf,
  takeOut,
  tryAgain,
  unshelve,
} from './batch-delivery.ts';
import type { UnavailableWhy, WaitsWhy } from './delivery-log.ts';
import type { FaultKind } from './fault-attribution.ts';
import type { Failure } from './platform-availability.ts';
import { MAX_LONE_REFUSALS } from './series-waits.ts';
import type { Meaning, Verdict } from './verdict.ts';

/** A post as it went out. */
interface Posted {
  /** Its number in the order of posts. */
  post: number;
  startedMs: number;
  /** Where it went to the address of one. */
  instrumentation?: number | undefined;
}

/** A post and what it was answered. */
export interface Answered extends Posted {
  verdict: Verdict;
  /** What the answer asks to wait. */
  askedMs: number;
  /** When it came, in the order of posts: the number of the next. */
  at: number;
}

export type Outcome =
  /** The store gave the batch. */
  | { kind: 'cut'; batch: Batch }
  /** The store had nothing to give. */
  | { kind: 'nothing' }
  /** VALUES_PATH names an instrumentation and the batch's one series has none. */
  | { kind: 'unaddressed'; batch: Batch }
  /** It is its turn. */
  | { kind: 'turn' }
  /** It has no request (yet paid where it has), or no address any more. */
  | { kind: 'unsent'; paid: boolean }
  | { kind: 'sent' }
  | { kind: 'answered'; answer: Answered }
  /** The agent stops: that says nothing about anyone. */
  | { kind: 'broken off' }
  /** The store divided what was refused; a lone value gives none. */
  | { kind: 'divided'; slices: readonly Batch[] }
  /** What was decided is carried out. */
  | { kind: 'done' }
  /** Something may have been taken meanwhile. */
  | { kind: 'look' }
  /** The platform became unavailable, the agent stops, or the address changed: nothing more of it is posted. */
  | { kind: 'recall' };

export type Effect =
  /** The lanes said that there was something: they and the store will agree soon. */
  | { do: 'find nothing' }
  | { do: 'settle'; slice: Batch; post: number }
  /** What a post that was taken shows: of the asset, of the platform, of its series and of its size. */
  | { do: 'credit'; slice: Batch; post: number; instrumentation: number | undefined }
  | { do: 'allow asset'; series: readonly number[] }
  /** Others that wait to know whether the platform takes anything. */
  | { do: 'look at parked' }
  | { do: 'tell refusal'; slice: Batch; verdict: Verdict; isFirst: boolean }
  | { do: 'learn size'; bytes: number }
  | { do: 'divide'; slice: Batch }
  | { do: 'tell division'; slice: Batch; slices: readonly Batch[] }
  | { do: 'count lone refusal'; series: number }
  | { do: 'quarantine'; slice: Batch; refusal: Refusal }
  | { do: 'hold series'; series: number; refusal: Refusal; why: WaitsWhy }
  | { do: 'deny access'; status: 403 | 404; series: readonly number[] | undefined; instrumentation: number | undefined }
  | { do: 'pause asset'; verdict: Verdict; minMs: number }
  /** The client has made the request budget rest already, as after every 429. */
  | { do: 'log rest' }
  /** It was paid for and is not posted: the client does not know of it. */
  | { do: 'refund request' }
  | { do: 'unavailable'; failure: Failure; why: UnavailableWhy; posted: Posted | undefined; minMs: number }
  | { do: 'available' }
  /** The assets that are denied with it are tried as soon as something is taken. */
  | { do: 'retry denied soon' }
  | { do: 'probe goes out' }
  | { do: 'probe is due again' }
  /** They wait again, in their old places. */
  | { do: 'release'; slices: readonly Batch[] }
  /** Everything before it is carried out: what comes after the slice is decided (`done`). Last of every step into `deciding`. */
  | { do: 'decide next' }
  | { do: 'end' };

/** What the uplink knows beside the batch, the outcome included. */
export interface Known {
  nowMs: number;
  isUnavailable: boolean;
  /** Whether this fault is everyone's. */
  isEveryones(fault: FaultKind): boolean;
  /** Whether only this asset could show anything now. */
  isAlone(): boolean;
  /** Whether something was taken that started then or later. */
  hasTakenSince(at: number): boolean;
  /** Of a series, with nothing of it taken in between. */
  loneRefusals(series: number): number;
  isAssetHeld(): boolean;
  areSeriesHeld(series: readonly number[]): boolean;
}

export interface Step {
  state: DeliveryState;
  effects: readonly Effect[];
}

/** So many lone values an asset without company is tried with before its refusals count as an outage. */
const MAX_LONE_TRIES = 32;
const NO_ADDRESS: Refusal = {
  status: 0,
  message: 'VALUES_PATH names an instrumentation, and tags.yaml gives this series none',
};

/** The fault that an answer counts as, before anything is decided. */
export function faultOf(meaning: Meaning): FaultKind | undefined {
  if (meaning === 'refused' || meaning === 'no-access' || meaning === 'later') return meaning;
  return meaning === 'not-understood' ? 'later' : undefined;
}

/** Throws where a batch in this state cannot meet such an outcome. */
export function decide(delivery: BatchDelivery, outcome: Outcome, known: Known): Step {
  const step = met(delivery, outcome, known);
  if (!step) throw new Error(`a batch that is ${delivery.state.kind} cannot meet: ${outcome.kind}`);
  return step;
}

function recalled(state: DeliveryState): Step {
  if ('after' in state) return { state: { ...state, after: 'return' }, effects: [] };
  return 'slices' in state ? goBack(state.slices) : { state, effects: [] };
}

function met(delivery: BatchDelivery, outcome: Outcome, known: Known): Step | undefined {
  const { state } = delivery;
  switch (outcome.kind) {
    case 'cut':
      return state.kind === 'taking' ? going({ ...state, kind: 'paying', slices: slicesOf(outcome.batch) }) : undefined;
    case 'nothing':
      return state.kind === 'taking'
        ? going({ kind: 'returning' }, [{ do: 'find nothing' }, { do: 'end' }])
        : undefined;
    case 'unaddressed':
      return state.kind === 'taking' ? unaddressed(outcome.batch) : undefined;
    case 'turn':
      return state.kind === 'ready' ? going({ kind: 'paying', after: 'next', slices: state.slices }) : undefined;
    case 'unsent':
      return state.kind === 'paying' ? goBack(state.slices, outcome.paid ? [{ do: 'refund request' }] : []) : undefined;
    case 'sent':
      return state.kind === 'paying' ? sent(delivery, state) : undefined;
    case 'answered':
      return state.kind === 'posting' ? answered(delivery, state, outcome.answer, known) : undefined;
    case 'broken off':
      return state.kind === 'posting' ? goBack(putBack(state.slices, [state.slice])) : undefined;
    case 'divided':
      return state.kind === 'dividing' ? divided(state, outcome.slices, known) : undefined;
    case 'done':
      return state.kind === 'deciding' ? next(delivery, state, known) : undefined;
    case 'look':
      // Whoever is busy looks when that is over.
      return state.kind === 'ready' || state.kind === 'parked' ? next(delivery, state, known) : going(state);
    case 'recall':
      return recalled(state);
  }
}

const going = (state: DeliveryState, effects: readonly Effect[] = []): Step => ({ state, effects });

/** Only the step that enters `deciding` leaves it: outcomes that arrive meanwhile change nothing but `after`. */
const deciding = (after: After, slices: Slices, effects: readonly Effect[]): Step =>
  going({ kind: 'deciding', after, slices }, [...effects, { do: 'decide next' }]);

function goBack(slices: Slices, effects: readonly Effect[] = []): Step {
  const back: Effect[] = [{ do: 'release', slices: allOf(slices) }, { do: 'end' }];
  return { state: { kind: 'returning' }, effects: [...effects, ...back] };
}

/** It waits until a reload gives it an address. */
function unaddressed(batch: Batch): Step {
  return goBack(slicesOf(batch), [
    { do: 'hold series', series: batch.series[0]!, refusal: NO_ADDRESS, why: 'no-address' },
  ]);
}

function sent({ probe }: BatchDelivery, { after, slices }: DeliveryState & { kind: 'paying' }): Step {
  const [slice, ...waiting] = slices.waiting;
  // What a probe was to show it has shown with its first post.
  const effects: Effect[] = probe && !slices.isDivided ? [{ do: 'probe goes out' }] : [];
  return going({ kind: 'posting', after, slices: { ...slices, waiting }, slice: slice! }, effects);
}

type Posting = DeliveryState & { kind: 'posting' };

function answered(delivery: BatchDelivery, state: Posting, answer: Answered, known: Known): Step {
  const { meaning } = answer.verdict;
  if (meaning === 'delivered') return delivered(delivery, state, answer, known);
  if (meaning === 'refused') return refused(state, answer, known);
  const effects = failed(delivery, answer, known);
  const slices = putBack(state.slices, [state.slice]);
  // The slices of a divided batch wait for the end of a rest together: taking them anew would begin the search again.
  if (meaning === 'rest' && slices.isDivided) return deciding(state.after, slices, effects);
  return goBack(slices, effects);
}

function delivered(delivery: BatchDelivery, state: Posting, answer: Answered, known: Known): Step {
  const { post, instrumentation } = answer;
  const { slice } = state;
  const slices = { ...state.slices, taken: state.slices.taken + 1 };
  // A slow disk must not hide from other assets that the platform accepts values.
  const effects: Effect[] = [
    { do: 'credit', slice, post, instrumentation },
    { do: 'settle', slice, post },
  ];
  if (delivery.kind === 'probe' || known.isAssetHeld()) effects.push({ do: 'allow asset', series: slice.series });
  return deciding(state.after, slices, [...effects, { do: 'look at parked' }]);
}

/** Neither taken nor refused. */
function failed(delivery: BatchDelivery, answer: Answered, known: Known): Effect[] {
  const { verdict, askedMs } = answer;
  const { meaning } = verdict;
  const probeAgain: Effect[] = delivery.probe ? [{ do: 'probe is due again' }] : [];
  const shown: Effect[] = delivery.trial ? [{ do: 'available' }] : [];
  const unavailable = (why: UnavailableWhy, minMs = 0): Effect => {
    const { code, words } = verdict;
    const failure = why === 'foreign' ? { code, words, isForeign: true } : { code, words };
    return { do: 'unavailable', failure, why, posted: answer, minMs };
  };
  switch (meaning) {
    case 'unreachable': {
      const why = verdict.code === 'platform.no_session' ? 'signed-out' : 'unavailable';
      return [unavailable(why), ...probeAgain];
    }
    case 'session':
      return [unavailable('signed-out'), ...probeAgain];
    case 'quota':
      return [unavailable('quota'), ...probeAgain];
    case 'rest':
      return [...shown, { do: 'log rest' }, ...probeAgain];
    case 'no-access': {
      const denied = denial(delivery, answer, known);
      return known.isEveryones('no-access')
        ? [denied, { do: 'retry denied soon' }, unavailable('no-access')]
        : [denied, ...shown];
    }
    default: {
      if (!known.isUnavailable && !known.isEveryones('later')) return [{ do: 'pause asset', verdict, minMs: askedMs }];
      return [unavailable(meaning === 'not-understood' ? 'foreign' : 'unavailable', askedMs), ...probeAgain];
    }
  }
}

function denial({ probe }: BatchDelivery, { verdict, instrumentation }: Answered, known: Known): Effect {
  const status = verdict.status === 403 ? 403 : 404;
  // A probe of held series says something about them; a probe of a series that only waits, about the asset.
  const series = probe?.onlySeries && known.areSeriesHeld(probe.onlySeries) ? probe.onlySeries : undefined;
  return { do: 'deny access', status, series, instrumentation };
}

function refused(state: Posting, { verdict, at }: Answered, known: Known): Step {
  const { slice, slices, after } = state;
  const tell: Effect = { do: 'tell refusal', slice, verdict, isFirst: !slices.isDivided };
  if (after === 'return') return goBack(putBack(slices, [slice]), [tell]);
  const refusal: LoneRefusal = { refusal: { status: verdict.status, message: verdict.words }, at };
  if (slice.values === 1) return refusedAlone({ ...state, refusal }, known, [tell]);
  const size: Effect[] = verdict.status === 413 ? [{ do: 'learn size', bytes: slice.body.length }] : [];
  return going({ kind: 'dividing', after, slices, slice, refusal }, [tell, ...size, { do: 'divide', slice }]);
}

type Dividing = DeliveryState & { kind: 'dividing' };

function divided(state: Dividing, parts: readonly Batch[], known: Known): Step {
  const { slice, after } = state;
  if (parts.length === 0) return refusedAlone(state, known, []);
  const slices = { ...putBack(state.slices, parts), isDivided: true };
  return deciding(after, slices, [{ do: 'tell division', slice, slices: parts }]);
}

function refusedAlone(state: Omit<Dividing, 'kind'>, known: Known, before: readonly Effect[]): Step {
  const { slice, slices, refusal, after } = state;
  if (slices.again.has(slice.id)) return quarantined(state, known, before);
  const series = slice.series[0]!;
  const counted = {
    ...slices,
    deferred: [...slices.deferred, { batch: slice, ...refusal }],
    loneRefusals: slices.loneRefusals + 1,
  };
  const isHopeless = known.loneRefusals(series) + 1 >= MAX_LONE_REFUSALS;
  const next = isHopeless ? shelve(counted, series) : counted;
  return deciding(after, next, [...before, { do: 'count lone refusal', series }]);
}

/** Where enough of its values were refused alone the series waits, and its slices go back to their places. */
function quarantined(state: Omit<Dividing, 'kind'>, known: Known, before: readonly Effect[]): Step {
  const { slice, slices, after } = state;
  const { refusal } = state.refusal;
  const series = slice.series[0]!;
  const effects: Effect[] = [...before, { do: 'quarantine', slice, refusal }];
  if (known.loneRefusals(series) < MAX_LONE_REFUSALS || hasUndecided(slices, series)) {
    return deciding(after, slices, effects);
  }
  const { out, left } = takeOut(slices, series);
  effects.push({ do: 'hold series', series, refusal, why: 'refused' }, { do: 'release', slices: out });
  return deciding(after, left, effects);
}

/** What comes after a slice: the next, a decision about what was refused, or the end. */
function next(delivery: BatchDelivery, state: DeliveryState, known: Known): Step {
  if ('after' in state && state.after === 'return') return goBack(slicesIn(state));
  const sinceMs = state.kind === 'ready' ? state.sinceMs : known.nowMs;
  const ready = (slices: Slices) => going({ kind: 'ready', slices, sinceMs });
  const proven = tryAgain(slicesIn(state), ({ at }) => known.hasTakenSince(at));
  // Something of a shelved series was taken meanwhile: it is worth dividing on.
  const slices = unshelve(proven, ({ series }) => known.loneRefusals(series[0]!) < MAX_LONE_REFUSALS);
  if (slices.waiting.length > 0) return ready(slices);
  const { deferred, shelved, taken, loneRefusals } = slices;
  if (deferred.length + shelved.length === 0) return going({ kind: 'returning' }, [{ do: 'end' }]);
  if (deferred.length === 0) return ready(unshelve(slices));
  if (known.isAlone()) {
    if (taken > 0) return ready(tryAgain(slices));
    return shelved.length > 0 && loneRefusals < MAX_LONE_TRIES ? ready(unshelve(slices)) : outage(slices);
  }
  if (known.isEveryones('refused')) return outage(slices);
  // A try during an outage was refused, but not as everything was: the platform is there.
  return going({ kind: 'parked', slices }, delivery.trial ? [{ do: 'available' }] : []);
}

/** The platform refuses whatever is posted: that says nothing about any value. */
function outage(slices: Slices): Step {
  const { status, message } = slices.deferred[0]!.refusal;
  const failure = { code: String(status), words: message };
  return goBack(slices, [{ do: 'unavailable', failure, why: 'refused', posted: undefined, minMs: 0 }]);
}
