/** The topics that a broker has and sends within a while, each with the numbers in its last message, as lines for tags.yaml. */
import type { Clock } from '../../base/clock.ts';
import { TagferryError, UsageError } from '../../base/errors.ts';
import type { Listening } from '../../broker/listening.ts';
import { ScannedNames } from '../scanned-names.ts';
import type { ScannedValue, ScanStep } from '../source-kind.ts';
import { wrongFilter } from './filter.ts';
import { listenFor } from './listen-for.ts';
import type { MqttValue } from './mqtt-value.ts';
import { Payload } from './payload.ts';

const EVERYTHING = ['#'];
const MAX_TOPICS = 5_000;
const MAX_MESSAGE_BYTES = 64 * 1024;
/** Of all messages that are kept; the scan may run in the agent. */
const MAX_KEPT_BYTES = 8 * 1024 * 1024;
const MAX_NUMBERS = 50;
const MAX_DEPTH = 5;
const MAX_SAMPLE = 60;

/** Names under which senders put the time of a message. */
const TIMES = ['time', 'timestamp', 'ts', 't'];
const SECONDS = { from: 1e9, to: 1e11 };

export interface MqttScan {
  /** A client beside the agent's; started and left here. */
  broker: Listening;
  /** Filters; all topics where none is named. */
  what: readonly string[];
  waitMs: number;
  clock: Clock;
  signal: AbortSignal;
}

/** Throws `UsageError` for what is no filter, and a `TagferryError` where the broker cannot be listened to. */
export async function* scanMqtt({ broker, what, waitMs, clock, signal }: MqttScan): AsyncGenerator<ScanStep> {
  const filters = what.length > 0 ? what : EVERYTHING;
  for (const filter of filters) {
    const wrong = wrongFilter(filter);
    if (wrong !== undefined) throw new UsageError(`"${filter}" ${wrong[0]}`, `${wrong[1]}.`);
  }
  const last = new Map<string, Uint8Array>();
  const refused = new Set<string>();
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
        // A copy: a slice would keep the whole chunk of the socket.
        last.set(topic, new Uint8Array(payload));
      },
      { qos: 0, refused: () => refused.add(filter) },
    );
  }
  yield* listenFor({ broker, waitMs, clock, signal, isOver: () => refused.size === filters.length });
  if (refused.size === filters.length) throw notAllowed(filters);
  const topics = [...last].toSorted(([one], [other]) => (one < other ? -1 : 1));
  const names = new ScannedNames();
  for (const [topic, payload] of topics) for (const found of valuesOf(topic, payload, names)) yield { found };
}

function notAllowed(filters: readonly string[]): TagferryError {
  return new TagferryError(`the broker does not let this client subscribe to ${filters.join(', ')}`, {
    code: 'broker.not_allowed',
    hint: 'Name topics that it may read, for example "plant/+/flow".',
  });
}

/** The message itself where it is a number, else each number in its JSON, with the time that stands beside them. */
function* valuesOf(topic: string, payload: Uint8Array, names: ScannedNames): Generator<ScannedValue> {
  const whole = readingOf(payload, { topic, template: topic });
  if (whole !== undefined) {
    yield { key: names.give(lastLevel(topic)), members: { topic }, sample: String(whole) };
    return;
  }
  const json = jsonOf(payload);
  if (typeof json !== 'object' || json === null) return;
  const time = timeOf(json);
  for (const pointer of numbersOf(json)) {
    if (pointer === time.time) continue;
    const value = readingOf(payload, { topic, template: topic, at: pointer });
    if (value === undefined) continue;
    const sample = String(value).slice(0, MAX_SAMPLE);
    yield { key: names.give(lastLevel(pointer)), members: { topic, at: pointer, ...time }, sample };
  }
}

function readingOf(payload: Uint8Array, value: MqttValue): number | undefined {
  try {
    // No time is read here.
    return new Payload(payload, 0).read(value).value;
  } catch {
    return undefined;
  }
}

function jsonOf(payload: Uint8Array): unknown {
  try {
    return JSON.parse(Buffer.from(payload).toString('utf8'));
  } catch {
    return undefined;
  }
}

/** Pointers of what reads as a number, in the order of the message. */
function numbersOf(json: object): string[] {
  const found: string[] = [];
  const walk = (value: unknown, pointer: string, depth: number) => {
    if (found.length >= MAX_NUMBERS) return;
    if (typeof value === 'number' || typeof value === 'boolean' || (typeof value === 'string' && isNumeric(value))) {
      found.push(pointer);
    } else if (typeof value === 'object' && value !== null && depth < MAX_DEPTH) {
      for (const [name, member] of Object.entries(value)) {
        walk(member, `${pointer}/${name.replaceAll('~', '~0').replaceAll('/', '~1')}`, depth + 1);
      }
    }
  };
  walk(json, '', 0);
  return found;
}

const isNumeric = (text: string) => /^\s*[+-]?(\d+(\.\d*)?|\.\d+)(e[+-]?\d+)?\s*$/i.test(text);

/** Where a time that the agent takes stands beside the numbers, under one of the usual names. */
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

const lastLevel = (path: string) => path.split('/').findLast((level) => level !== '') ?? '';
