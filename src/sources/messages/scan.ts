/**
 * Listens to a broker for a limited time and lists the topics of all retained and new messages, with the numbers in
 * their latest messages, as lines for tags.yaml.
 */
import { TagferryError, UsageError } from '../../base/errors.ts';
import { ScannedNames } from '../scanned-names.ts';
import type { ScannedValue, ScanStep } from '../source-kind.ts';
import { type Listening, listenFor } from './listen-for.ts';
import { wrongFilter } from './message-members.ts';
import { Payload, pointedAt } from './payload.ts';

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
    for (const { path, members, sample } of valuesOf(topic, latest.get(topic)!)) {
      const key = names.unique(path.split('/').findLast((level) => level !== '') ?? '');
      const found: ScannedValue = { key, members: { topic, ...members }, sample: String(sample).slice(0, MAX_SAMPLE) };
      yield { found };
    }
  }
}

/** A number in a message. `path` ends with its name. */
interface FoundNumber {
  path: string;
  members: Readonly<Record<string, string>>;
  sample: unknown;
}

/** Yields the message itself if it is a number, otherwise each number in its JSON with the message time. */
function* valuesOf(topic: string, bytes: Uint8Array): Generator<FoundNumber> {
  // The arrival time is not used for a scan.
  const payload = new Payload(bytes);
  const whole = attempt(() => payload.read({ topic, template: topic }).value);
  if (whole !== undefined) {
    yield { path: topic, members: {}, sample: whole };
    return;
  }
  const json = attempt(() => payload.json());
  if (typeof json !== 'object' || json === null) return;
  const lists = sampleListsOf(json);
  for (const { samples, last } of lists) {
    const time = timeOf(last);
    for (const at of numbersOf(last, [])) {
      if (at !== time.time) yield { path: at, members: { samples, at, ...time }, sample: pointedAt(last, at) };
    }
  }
  const time = timeOf(json);
  for (const at of numbersOf(
    json,
    lists.map(({ samples }) => samples),
  )) {
    const sample = at === time.time ? undefined : attempt(() => payload.read({ topic, template: topic, at }).value);
    if (sample !== undefined) yield { path: at, members: { at, ...time }, sample };
  }
}

function attempt<Result>(read: () => Result): Result | undefined {
  try {
    return read();
  } catch {
    return undefined;
  }
}

/** Returns the lists whose elements all have a time, with their last element: several samples of the same values. */
function sampleListsOf(json: object): { samples: string; last: object }[] {
  const found: { samples: string; last: object }[] = [];
  const isSample = (one: unknown) => typeof one === 'object' && one !== null && timeOf(one).time !== undefined;
  walk(json, (value, samples) => {
    if (!Array.isArray(value) || found.length >= MAX_SAMPLE_LISTS) return !Array.isArray(value);
    if (value.length > 1 && value.every(isSample)) found.push({ samples, last: value.at(-1) as object });
    return false;
  });
  return found;
}

/** Returns JSON pointers to the numbers in the message, in message order. `except`: pointers of omitted members. */
function numbersOf(json: object, except: readonly string[]): string[] {
  const found: string[] = [];
  walk(json, (value, pointer) => {
    if (found.length >= MAX_NUMBERS || except.includes(pointer)) return false;
    const isText = typeof value === 'string' && /^\s*[+-]?(\d+(\.\d*)?|\.\d+)(e[+-]?\d+)?\s*$/i.test(value);
    if (isText || typeof value === 'number' || typeof value === 'boolean') found.push(pointer);
    return true;
  });
  return found;
}

/** Calls `visit` with each value and its JSON pointer. Visits the members of a value if `visit` returns true. */
function walk(value: unknown, visit: (value: unknown, pointer: string) => boolean, pointer = '', depth = 0): void {
  if (!visit(value, pointer) || typeof value !== 'object' || value === null || depth >= MAX_DEPTH) return;
  for (const [name, member] of Object.entries(value)) {
    walk(member, visit, `${pointer}/${name.replaceAll('~', '~0').replaceAll('/', '~1')}`, depth + 1);
  }
}

/** Returns the first member that has a common name and contains a valid time, if any. */
function timeOf(json: object): { time?: string; time_unit?: string } {
  for (const [name, value] of Object.entries(json)) {
    if (!TIMES.includes(name.toLowerCase())) continue;
    const isSeconds = typeof value === 'number' && value >= SECONDS.from && value < SECONDS.to;
    const isMs = typeof value === 'number' && value >= SECONDS.to && value < SECONDS.to * 1_000;
    const isIso = typeof value === 'string' && /^\d{4}-\d\d-\d\dT\d\d:\d\d/.test(value);
    if (isSeconds || isMs || isIso) return { time: `/${name}`, ...(isSeconds ? { time_unit: 's' } : {}) };
  }
  return {};
}
