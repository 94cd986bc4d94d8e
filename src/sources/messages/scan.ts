/**
 * Listens to a broker for a limited time and lists the topics of all retained and new messages, with the numbers in
 * their latest messages, as lines for tags.yaml.
 */
import type { Clock } from '../../base/clock.ts';
import { TagferryError, UsageError } from '../../base/errors.ts';
import type { InspectionClient } from '../../broker/subscriptions.ts';
import type { TopicGrammar } from '../../broker/topic-filters.ts';
import { wrongSubject } from '../../config/topics.ts';
import type { RawReading } from '../intake/shaping.ts';
import { ScannedNames } from '../scanned-names.ts';
import type { ScannedValue, ScanStep } from '../source-kind.ts';
import { listenFor } from './listen-for.ts';
import { wrongFilter } from './message-members.ts';
import { type MessageValue, Payload, pointedAt } from './payload.ts';

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

export interface MessageScan {
  /** Separate client, started and stopped here. */
  broker: InspectionClient;
  grammar: TopicGrammar;
  /** Topic filters; empty means all topics. */
  what: readonly string[];
  waitMs: number;
  clock: Clock;
  signal: AbortSignal;
}

/** Throws `UsageError` for an invalid filter and a `TagferryError` if listening to the broker fails. */
export async function* scanMessages(scan: MessageScan): AsyncGenerator<ScanStep> {
  const { broker, grammar, what, waitMs, clock, signal } = scan;
  const filters = what.length > 0 ? what : [grammar.rest];
  for (const filter of filters) checkFilter(filter, grammar);
  const last = new Map<string, Uint8Array>();
  const rejected = new Set<string>();
  let keptBytes = 0;
  for (const filter of filters) {
    broker.subscribe(
      filter,
      async ({ topic, payload }) => {
        const before = last.get(topic);
        if (payload.length > MAX_MESSAGE_BYTES || (before === undefined && last.size >= MAX_TOPICS)) return;
        const more = before === undefined ? topic.length + payload.length : payload.length - before.length;
        if (keptBytes + more > MAX_KEPT_BYTES) return;
        keptBytes += more;
        // Copy the payload, because a slice would retain the whole socket chunk in memory.
        last.set(topic, new Uint8Array(payload));
      },
      { qos: 0, rejected: () => rejected.add(filter) },
    );
  }
  yield* listenFor({ broker, waitMs, clock, signal, isOver: () => rejected.size === filters.length });
  if (rejected.size === filters.length) throw notAllowed(filters);
  const topics = [...last].toSorted(([one], [other]) => (one < other ? -1 : 1));
  const names = new ScannedNames();
  for (const [topic, payload] of topics) for (const found of valuesOf(topic, payload, names, grammar)) yield { found };
}

function checkFilter(filter: string, { name }: TopicGrammar): void {
  const wrong =
    name === 'topic' ? wrongFilter(filter) : [wrongSubject(filter, 'wildcards'), 'use a value such as plant.>'];
  if (wrong?.[0] !== undefined) throw new UsageError(`"${filter}" ${wrong[0]}`, `${wrong[1]}.`);
}

function notAllowed(filters: readonly string[]): TagferryError {
  return new TagferryError(`the broker rejected subscriptions to ${filters.join(', ')}`, {
    code: 'broker.not_allowed',
    hint: 'Use topics that this client is allowed to read, for example "plant/+/flow".',
  });
}

/** Yields the message itself if it is a number, otherwise each number in its JSON with the message time. */
function* valuesOf(
  topic: string,
  payload: Uint8Array,
  names: ScannedNames,
  { name, separator }: TopicGrammar,
): Generator<ScannedValue> {
  const whole = readingOf(payload, { topic, template: topic });
  if (whole !== undefined) {
    yield { key: names.unique(lastLevel(topic, separator)), members: { [name]: topic }, sample: String(whole) };
    return;
  }
  const json = jsonOf(payload);
  if (typeof json !== 'object' || json === null) return;
  const lists = sampleListsOf(json);
  for (const { samples, last } of lists) {
    const time = timeOf(last);
    for (const at of numbersOf(last, [])) {
      if (at === time.time) continue;
      const members = { [name]: topic, samples, at, ...time };
      yield {
        key: names.unique(lastLevel(at, '/')),
        members,
        sample: String(pointedAt(last, at)).slice(0, MAX_SAMPLE),
      };
    }
  }
  const time = timeOf(json);
  const listed = lists.map(({ samples }) => samples);
  for (const pointer of numbersOf(json, listed)) {
    if (pointer === time.time) continue;
    const value = readingOf(payload, { topic, template: topic, at: pointer });
    if (value === undefined) continue;
    const sample = String(value).slice(0, MAX_SAMPLE);
    yield { key: names.unique(lastLevel(pointer, '/')), members: { [name]: topic, at: pointer, ...time }, sample };
  }
}

/** Returns the lists whose elements all have a time, with their last element: several samples of the same values. */
function sampleListsOf(json: object): { samples: string; last: object }[] {
  const found: { samples: string; last: object }[] = [];
  const walk = (value: unknown, pointer: string, depth: number) => {
    if (typeof value !== 'object' || value === null || found.length >= MAX_SAMPLE_LISTS) return;
    if (Array.isArray(value)) {
      const isSample = (one: unknown) => typeof one === 'object' && one !== null && Object.keys(timeOf(one)).length > 0;
      if (value.length > 1 && value.every(isSample)) found.push({ samples: pointer, last: value.at(-1) as object });
    } else if (depth < MAX_DEPTH) {
      for (const [member, below] of Object.entries(value)) walk(below, `${pointer}/${escaped(member)}`, depth + 1);
    }
  };
  walk(json, '', 0);
  return found;
}

function readingOf(payload: Uint8Array, value: MessageValue): RawReading | undefined {
  try {
    // The arrival time is not used for a scan.
    return new Payload(payload, 0).read(value).value;
  } catch {
    return undefined;
  }
}

function jsonOf(payload: Uint8Array): unknown {
  try {
    return new Payload(payload, 0).json();
  } catch {
    return undefined;
  }
}

/** Returns JSON pointers to the numbers in the message, in message order. `except`: pointers of omitted members. */
function numbersOf(json: object, except: readonly string[]): string[] {
  const found: string[] = [];
  const walk = (value: unknown, pointer: string, depth: number) => {
    if (found.length >= MAX_NUMBERS || except.includes(pointer)) return;
    if (typeof value === 'number' || typeof value === 'boolean' || (typeof value === 'string' && isNumeric(value))) {
      found.push(pointer);
    } else if (typeof value === 'object' && value !== null && depth < MAX_DEPTH) {
      for (const [name, member] of Object.entries(value)) {
        walk(member, `${pointer}/${escaped(name)}`, depth + 1);
      }
    }
  };
  walk(json, '', 0);
  return found;
}

/** Escapes a member name for a JSON pointer. */
const escaped = (name: string) => name.replaceAll('~', '~0').replaceAll('/', '~1');

const isNumeric = (text: string) => /^\s*[+-]?(\d+(\.\d*)?|\.\d+)(e[+-]?\d+)?\s*$/i.test(text);

/** Returns the first member that has a common name and contains a valid time, if any. */
function timeOf(json: object): Record<string, string> {
  for (const [name, value] of Object.entries(json)) {
    if (!TIMES.includes(name.toLowerCase())) continue;
    const isSeconds = typeof value === 'number' && value >= SECONDS.from && value < SECONDS.to;
    const isMs = typeof value === 'number' && value >= SECONDS.to && value < SECONDS.to * 1_000;
    const isIso = typeof value === 'string' && /^\d{4}-\d\d-\d\dT\d\d:\d\d/.test(value);
    if (isSeconds || isMs || isIso) return { time: `/${name}`, ...(isSeconds ? { time_unit: 's' } : {}) };
  }
  return {};
}

const lastLevel = (path: string, separator: string) => path.split(separator).findLast((level) => level !== '') ?? '';
