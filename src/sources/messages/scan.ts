/**
 * Listens to a broker for a limited time and lists the topics of all retained and new messages, with the numbers in
 * their latest messages, as lines for tags.yaml.
 */
import type { Clock } from '../../base/clock.ts';
import { TagferryError, UsageError } from '../../base/errors.ts';
import type { Broker } from '../../broker/broker.ts';
import { parseJson } from '../intake/text-parsers.ts';
import { ScannedNames } from '../scanned-names.ts';
import type { ScanStep } from '../source-kind.ts';
import { wrongFilter } from './message-members.ts';
import { rawOf, textOf } from './payload.ts';

const CHECK_INTERVAL_MS = 200;
/** Connect timeout, in milliseconds. Listening starts after the connection is established. */
const CONNECT_MS = 10_000;
const MAX_TOPICS = 5_000;
const MAX_MESSAGE_BYTES = 64 * 1024;
/** Limit for the total size of stored messages, in bytes, because the scan may run inside the agent. */
const MAX_KEPT_BYTES = 8 * 1024 * 1024;
const MAX_NUMBERS = 50;
const MAX_DEPTH = 5;
const MAX_SAMPLE_LISTS = 5;
const MAX_SAMPLE = 60;

/** Common names of JSON members that contain the time of a message. */
const TIMES = ['time', 'timestamp', 'ts', 't'];
const SECONDS = { from: 1e9, to: 1e11 };

/** A separate client with its subscriptions, started and stopped by the scan, and the time for which it listens. */
export interface Listening {
  broker: Broker;
  waitMs: number;
  clock: Clock;
  signal: AbortSignal;
}

/** Listens until `isOver`, or for a limited time. Yields its progress. Throws if the broker is unreachable. */
export async function* listenFor(
  { broker, waitMs, clock, signal }: Listening,
  isOver = () => false,
): AsyncGenerator<{ done: number; total: number }> {
  broker.start();
  try {
    const endMs = clock.monotonicMs() + CONNECT_MS;
    const isConnecting = () => !broker.state().connected && broker.state().failures === 0;
    while (isConnecting() && clock.monotonicMs() < endMs) await clock.sleep(CHECK_INTERVAL_MS, signal);
    const { connected, problem = 'no response' } = broker.state();
    if (!connected) throw new TagferryError(`the broker is not connected (${problem})`, { code: 'broker.away' });
    const startMs = clock.monotonicMs();
    for (let passedMs = 0; passedMs < waitMs && !isOver(); ) {
      await clock.sleep(Math.min(CHECK_INTERVAL_MS, waitMs - passedMs), signal);
      passedMs = clock.monotonicMs() - startMs;
      yield { done: Math.min(passedMs, waitMs), total: waitMs };
    }
  } finally {
    await broker.leave();
  }
}

/**
 * `what`: topic filters; empty means all topics. Throws `UsageError` for an invalid filter and a `TagferryError` if
 * listening to the broker fails.
 */
export async function* scanMessages({
  what,
  ...listening
}: Listening & { what: readonly string[] }): AsyncGenerator<ScanStep> {
  const filters = what.length > 0 ? what : ['#'];
  for (const filter of filters) {
    const [reason, instead] = wrongFilter(filter) ?? [];
    if (reason !== undefined) throw new UsageError(`"${filter}" ${reason}`, `${instead}.`);
  }
  const latest = new Map<string, Uint8Array>();
  const rejected = new Set<string>();
  let keptBytes = 0;
  listening.broker.subscribe(
    filters,
    async ({ topic, payload }) => {
      const before = latest.get(topic);
      if (payload.length > MAX_MESSAGE_BYTES || (before === undefined && latest.size >= MAX_TOPICS)) return;
      const more = before === undefined ? topic.length + payload.length : payload.length - before.length;
      if (keptBytes + more > MAX_KEPT_BYTES) return;
      keptBytes += more;
      // Copy the payload, because a slice would retain the whole socket chunk in memory.
      latest.set(topic, new Uint8Array(payload));
    },
    { qos: 0, permitted: (filter, isPermitted) => void (isPermitted || rejected.add(filter)) },
  );
  yield* listenFor(listening, () => rejected.size === filters.length);
  if (rejected.size === filters.length) {
    throw new TagferryError(`the broker rejected subscriptions to ${filters.join(', ')}`, {
      code: 'broker.not_allowed',
      hint: 'Use topics that this client is allowed to read, for example "plant/+/flow".',
    });
  }
  const names = new ScannedNames();
  for (const topic of [...latest.keys()].toSorted()) {
    for (const { members, sample } of valuesIn(latest.get(topic)!)) {
      const path = members.at ?? topic;
      const key = names.unique(path.split('/').findLast((level) => level !== '') ?? '');
      yield { found: { key, members: { topic, ...members }, sample: String(sample).slice(0, MAX_SAMPLE) } };
    }
  }
}

interface FoundNumber {
  members: { samples?: string; at?: string; time?: string; time_unit?: string };
  sample: unknown;
}

/** Yields the message itself if it is a number, otherwise each number in its JSON with the message time. */
function* valuesIn(bytes: Uint8Array): Generator<FoundNumber> {
  const text = textOf(bytes);
  const whole = rawOf(text);
  if (whole !== undefined) {
    yield { members: {}, sample: whole };
    return;
  }
  const json = parseJson(text);
  const lists = sampleListsIn(json);
  for (const { pointer: samples, value } of lists) {
    for (const { members, sample } of numbersIn(value.at(-1))) yield { members: { samples, ...members }, sample };
  }
  yield* numbersIn(json, lists);
}

interface Member {
  pointer: string;
  value: unknown;
}

/** Yields the numbers in the JSON with its time, in message order, except those in `lists`. */
function* numbersIn(json: unknown, lists: readonly Member[] = []): Generator<FoundNumber> {
  const time = timeOf(json);
  let count = 0;
  for (const { pointer: at, value } of membersOf(json)) {
    const sample = rawOf(value);
    if (sample === undefined || at === time.time || lists.some(({ pointer }) => at.startsWith(`${pointer}/`))) continue;
    if (++count > MAX_NUMBERS) return;
    yield { members: { at, ...time }, sample };
  }
}

/** Returns the lists whose elements all have a time: several samples of the same values. */
function sampleListsIn(json: unknown): { pointer: string; value: unknown[] }[] {
  const found: { pointer: string; value: unknown[] }[] = [];
  for (const { pointer, value } of membersOf(json)) {
    const isList = Array.isArray(value) && value.length > 1 && value.every((one) => timeOf(one).time !== undefined);
    if (isList && !found.some((list) => pointer.startsWith(`${list.pointer}/`))) found.push({ pointer, value });
    if (found.length === MAX_SAMPLE_LISTS) break;
  }
  return found;
}

/** Yields the JSON and its members in message order, with their JSON pointers. */
function* membersOf(value: unknown, pointer = '', depth = 0): Generator<Member> {
  yield { pointer, value };
  if (typeof value !== 'object' || value === null || depth >= MAX_DEPTH) return;
  for (const [name, member] of Object.entries(value)) {
    yield* membersOf(member, `${pointer}/${name.replaceAll('~', '~0').replaceAll('/', '~1')}`, depth + 1);
  }
}

/** Returns the first member that has a common name and contains a valid time, if any. */
function timeOf(json: unknown): { time?: string; time_unit?: string } {
  if (typeof json !== 'object' || json === null) return {};
  for (const [name, value] of Object.entries(json)) {
    if (!TIMES.includes(name.toLowerCase())) continue;
    const isSeconds = typeof value === 'number' && value >= SECONDS.from && value < SECONDS.to;
    const isMs = typeof value === 'number' && value >= SECONDS.to && value < SECONDS.to * 1_000;
    const isIso = typeof value === 'string' && /^\d{4}-\d\d-\d\dT\d\d:\d\d/.test(value);
    if (isSeconds || isMs || isIso) return { time: `/${name}`, ...(isSeconds ? { time_unit: 's' } : {}) };
  }
  return {};
}
