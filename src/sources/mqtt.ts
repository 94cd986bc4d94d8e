import { STAMPED_HERE, ValueColumns } from '../buffer/value-columns.ts';
import type { Clock } from '../clock.ts';
import { messageOf, TagferryError } from '../errors.ts';
import type { Logger } from '../logger.ts';
import { parseDecimal } from './decimal-text.ts';
import { GatheredAppend } from './gathered-append.ts';
import type { Point } from './points.ts';
import { TroubleLog } from './trouble-log.ts';
import type { CountIngested, ValueSink } from './value-sink.ts';

/** The broker as this source sees it. */
export interface TopicSubscriber {
  /**
   * Calls `handler` for each message on the topic and acknowledges the message to the broker when it resolves; a message whose
   * handler rejects is not acknowledged, so that the broker sends it again. The function it returns ends the subscription.
   */
  subscribe(topic: string, handler: (payload: Uint8Array, retained?: boolean) => Promise<void>): () => void;
}

export interface MqttSourceOptions {
  /** Of the source in tags.yaml. */
  name: string;
  points: readonly Point<'mqtt'>[];
  broker: TopicSubscriber;
  sink: ValueSink;
  clock: Clock;
  log: Logger;
  countIngested?: CountIngested;
}

/** Larger messages hold no reading. */
const MOST_PAYLOAD_BYTES = 1024 * 1024;

/**
 * Values that a broker brings: one subscription a topic, for all values that tags.yaml takes from it. A message is acknowledged when
 * its values are on disk; one that cannot be read is acknowledged too, said and counted, because the same bytes would come again. A
 * retained message is taken, as the last known value, but not a second time when a connection comes back.
 */
export class MqttSource {
  readonly #options: MqttSourceOptions;
  readonly #append: GatheredAppend;
  readonly #trouble: TroubleLog;
  readonly #lastRetained = new Map<string, string>();
  #unsubscribe: (() => void)[] = [];
  /** Messages of which nothing could be read. */
  unreadable = 0;

  constructor(options: MqttSourceOptions) {
    this.#options = options;
    this.#append = new GatheredAppend(options);
    this.#trouble = new TroubleLog(options.log, options.clock);
  }

  start(signal?: AbortSignal): void {
    const topics = Map.groupBy(this.#options.points, (point) => point.origin.topic);
    for (const [topic, points] of topics) {
      const handler = (payload: Uint8Array, retained = false) => this.#take(topic, points, payload, retained);
      this.#unsubscribe.push(this.#options.broker.subscribe(topic, handler));
    }
    signal?.addEventListener('abort', () => void this.stop(), { once: true });
  }

  /** Resolves when the values under way are on disk or refused. */
  async stop(): Promise<void> {
    for (const unsubscribe of this.#unsubscribe.splice(0)) unsubscribe();
    await this.#append.stop();
  }

  async #take(topic: string, points: readonly Point<'mqtt'>[], payload: Uint8Array, retained: boolean): Promise<void> {
    if (payload.length > MOST_PAYLOAD_BYTES) return this.#sayUnreadable(topic, 'it is larger than 1 MiB');
    const text = new TextDecoder().decode(payload);
    if (retained && this.#lastRetained.get(topic) === text) return;
    const columns = new ValueColumns();
    const wallMs = Math.max(0, Math.round(this.#options.clock.wallMs()));
    let problem: string | undefined;
    for (const { series, origin } of points) {
      try {
        columns.add(series, wallMs, readPayload(text, origin.at), STAMPED_HERE);
      } catch (error) {
        problem = messageOf(error);
      }
    }
    // A message with some of its values is a sender that sends what has changed.
    if (columns.length === 0) return this.#sayUnreadable(topic, problem ?? 'it is empty');
    this.#trouble.over('mqtt.unreadable', { topic }, 'Messages of a topic can be read again', topic);
    await this.#append.add(columns);
    if (retained && text.length <= 4096) this.#lastRetained.set(topic, text);
  }

  #sayUnreadable(topic: string, error: string): void {
    this.unreadable++;
    const fields = { source: this.#options.name, topic, error };
    this.#trouble.again({ event: 'mqtt.unreadable', ...fields }, 'A message holds no value', topic);
  }
}

/**
 * The number in a message: the payload itself, or what the JSON pointer (RFC 6901) `at` finds in it. Numbers, numbers in
 * quotes (many senders know nothing else), `true` and `false` as 1 and 0. Throws a `TagferryError` that does not quote the message.
 */
export function readPayload(text: string, at: string | undefined): number {
  const found = at === undefined ? text : pointedAt(parse(text), at);
  const plain = typeof found === 'string' ? found.trim() : found;
  if (plain === true || plain === 'true') return 1;
  if (plain === false || plain === 'false') return 0;
  const value = typeof plain === 'string' ? parseDecimal(unquoted(plain), 0, unquoted(plain).length) : plain;
  if (typeof value === 'number' && Number.isFinite(value)) return value;
  throw new TagferryError(at === undefined ? 'the payload is not a number' : `there is no number at ${at}`, {
    code: 'mqtt.no_number',
  });
}

function unquoted(text: string): string {
  return text.length > 1 && text.startsWith('"') && text.endsWith('"') ? text.slice(1, -1) : text;
}

function parse(text: string): unknown {
  try {
    return JSON.parse(text);
  } catch {
    throw new TagferryError('the payload is not JSON', { code: 'mqtt.no_json' });
  }
}

function pointedAt(json: unknown, pointer: string): unknown {
  let found = json;
  for (const part of pointer.split('/').slice(1)) {
    if (typeof found !== 'object' || found === null) return undefined;
    const name = part.replaceAll('~1', '/').replaceAll('~0', '~');
    found = Object.hasOwn(found, name) ? (found as Record<string, unknown>)[name] : undefined;
  }
  return found;
}
