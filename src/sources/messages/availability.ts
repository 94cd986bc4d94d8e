/**
 * Availability topics, on which brokers, gateways and devices announce that a device is offline, often through a will
 * message: `offline`, or `{"state":"offline"}`.
 */
import { countText } from '../../base/amounts.ts';
import type { Availability } from '../../broker/broker-spec.ts';
import { printable } from '../../config/problem.ts';
import type { MemberReport, Members } from '../../config/source-kinds.ts';
import { quote } from '../intake/address-book.ts';
import { unpadded } from '../intake/text-parsers.ts';
import type { Point } from '../points.ts';
import type { MessageValue } from './payload.ts';

const PAYLOAD = {
  type: ['string', 'number', 'boolean'],
  minLength: 1,
  maxLength: 256,
  title: 'a text',
};
const MAX_PAYLOAD_BYTES = 1_024;
const SHOWN_TOPIC = 100;

/** Members of sources and values. Those of a value override those of its source. */
export const AVAILABILITY_MEMBERS = {
  availability: {
    type: 'string',
    minLength: 1,
    maxLength: 1024,
    title: 'a topic or subject',
    description:
      'MQTT and NATS: topic or subject on which the device announces that it is offline. The latest value is then sent with status bad.',
    examples: ['zigbee2mqtt/ft101/availability', 'tele/{tag}/LWT'],
  },
  payload_available: {
    ...PAYLOAD,
    default: 'online',
    description: 'Message text that announces an available device.',
    examples: ['1'],
  },
  payload_not_available: {
    ...PAYLOAD,
    default: 'offline',
    description: 'Message text that announces an unavailable device.',
    examples: ['0'],
  },
};

/** Parses the members. Returns `undefined` after reporting a problem. `wrongTopic`: returns the problem with a topic. */
export function readAvailability(
  { availability, payload_available: available, payload_not_available: unavailable }: Members,
  report: MemberReport,
  wrongTopic: (topic: string) => string | undefined,
): { availability?: Availability } | undefined {
  const topic = availability === undefined ? undefined : String(availability);
  const wrong = topic === undefined ? undefined : wrongTopic(topic);
  if (wrong !== undefined) {
    const instead = 'use one topic or subject, without wildcards';
    report.problem('availability', `availability "${printable(topic!)}" ${wrong}`, instead);
    return undefined;
  }
  const words = [available ?? 'online', unavailable ?? 'offline'].map((word) => String(word).trim().toLowerCase());
  if (words[0] === words[1]) {
    const instead = 'use different texts, such as online and offline';
    report.problem('payload_not_available', 'payload_not_available must differ from payload_available', instead);
    return undefined;
  }
  const read: Availability = {
    ...(topic === undefined ? {} : { topic }),
    ...(available === undefined ? {} : { available: words[0]! }),
    ...(unavailable === undefined ? {} : { unavailable: words[1]! }),
  };
  return Object.keys(read).length === 0 ? {} : { availability: read };
}

/** Availability of the devices of a source, by topic. */
export class DeviceAvailability {
  readonly #rules = new Map<string, { point: Point<MessageValue>; available: string; unavailable: string }[]>();
  readonly #topicOf = new Map<Point<MessageValue>, string>();
  /** Topics whose latest message announces an unavailable device, and the affected values. */
  readonly #unavailable = new Map<string, ReadonlySet<Point<MessageValue>>>();

  constructor(points: readonly Point<MessageValue>[], ofSource: Availability | undefined) {
    for (const point of points) {
      const { topic, available = 'online', unavailable = 'offline' } = { ...ofSource, ...point.spec.availability };
      if (topic === undefined) continue;
      const rules = this.#rules.get(topic) ?? [];
      rules.push({ point, available, unavailable });
      this.#rules.set(topic, rules);
      this.#topicOf.set(point, topic);
    }
  }

  get topics(): readonly string[] {
    return [...this.#rules.keys()];
  }

  /** Returns the problem of the source while devices are unavailable. */
  get problem(): string | undefined {
    const [first] = this.#unavailable.keys();
    if (first === undefined) return undefined;
    const { size } = this.#unavailable;
    const devices = size === 1 ? 'device unavailable' : `${countText(size)} devices unavailable, for example`;
    return `${devices} according to ${first.length > SHOWN_TOPIC ? `${first.slice(0, SHOWN_TOPIC)}…` : first}`;
  }

  isUnavailable(point: Point<MessageValue>): boolean {
    return this.#unavailable.get(this.#topicOf.get(point) ?? '')?.has(point) === true;
  }

  /**
   * Returns the values whose device is unavailable according to the message, or the problem of the message. Returns
   * `undefined` for other topics. Ignores empty messages, which only remove a retained message.
   */
  read(
    topic: string,
    payload: Uint8Array,
  ): { unavailable: readonly Point<MessageValue>[]; isRepeated?: boolean; problem?: string } | undefined {
    const rules = this.#rules.get(topic);
    if (rules === undefined) return undefined;
    if (payload.length === 0) return { unavailable: [] };
    const word = wordIn(payload);
    const unavailable = rules.filter((rule) => rule.unavailable === word).map(({ point }) => point);
    const isKnown = unavailable.length > 0 || rules.some(({ available }) => available === word);
    if (!isKnown) {
      const [{ available, unavailable: other }] = rules as [(typeof rules)[0]];
      return { unavailable, problem: `${quote(word)} is neither ${quote(available)} nor ${quote(other)}` };
    }
    const isRepeated = unavailable.length > 0 && this.#unavailable.has(topic);
    if (unavailable.length > 0) this.#unavailable.set(topic, new Set(unavailable));
    else this.#unavailable.delete(topic);
    return { unavailable, isRepeated };
  }
}

/** Returns the text of a message, or of its member `state`, in lower case. Returns other JSON as it was sent. */
function wordIn(payload: Uint8Array): string {
  const text = unpadded(Buffer.from(payload.subarray(0, MAX_PAYLOAD_BYTES)).toString('utf8'));
  let word: unknown = text;
  try {
    const json = JSON.parse(text) as { state?: unknown } | string | null;
    word = typeof json === 'object' ? json?.state : json;
  } catch {
    // Plain text.
  }
  const isText = word !== undefined && typeof word !== 'object';
  return (isText ? unpadded(String(word)) : text).toLowerCase();
}
