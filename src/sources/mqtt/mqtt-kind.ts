import type { Broker } from '../../broker/broker.ts';
import { type BrokerSpec, placeOf } from '../../broker/broker-spec.ts';
import { MQTT_TOPICS } from '../../broker/topic-filters.ts';
import { printable } from '../../config/problem.ts';
import type { MemberReport, Members } from '../../config/source-kinds.ts';
import { wrongTopic } from '../../config/topics.ts';
import { ZONE_MEMBER } from '../intake/logger-time.ts';
import {
  AVAILABILITY_MEMBERS,
  BROKER_MEMBERS,
  hasOwnTime,
  MESSAGE_MEMBERS,
  messageWriting,
  placeText,
  readBroker,
  readMessageMembers,
  wrongFilter,
} from '../messages/message-members.ts';
import type { MessageValue } from '../messages/payload.ts';
import type { SourceKind } from '../source-kind.ts';

/** An MQTT broker: `broker: { mqtt: "mqtt://127.0.0.1:1883" }`. */
export const MQTT: SourceKind<BrokerSpec, MessageValue> = {
  kind: 'mqtt',
  example: 'mqtt: mqtt://…',
  publishes: 'topic',
  sourceMembers: {
    mqtt: {
      type: 'string',
      title: 'the address of an MQTT broker',
      description: 'MQTT broker to subscribe to.',
      examples: ['mqtt://127.0.0.1:1883', 'mqtts://broker.example:8883'],
    },
    ...BROKER_MEMBERS,
    retained: {
      enum: ['skip', 'take'],
      default: 'skip',
      description:
        'MQTT: whether retained messages without a time of their own are skipped or get the time of arrival. They can be older than the current value.',
    },
    zone: ZONE_MEMBER,
    ...AVAILABILITY_MEMBERS,
    share: {
      type: 'string',
      pattern: '^[^/+#\\u0000]{1,128}$',
      title: 'the name of a group',
      description: 'MQTT: shared subscription group; each message is delivered to one agent in the group.',
      examples: ['gateways'],
    },
  },
  valueMembers: {
    topic: {
      type: 'string',
      minLength: 1,
      maxLength: 1024,
      title: 'an MQTT topic',
      description: 'MQTT: topic of the value; can contain the wildcards + and #, and {tag} for the tag name.',
      examples: ['site/ft101', 'plant/{tag}/flow'],
    },
    ...MESSAGE_MEMBERS,
    time_property: {
      type: 'string',
      minLength: 1,
      maxLength: 128,
      title: 'the name of a user property',
      description: 'MQTT 5: user property with the time of the value, instead of `time`.',
      examples: ['timestamp'],
    },
  },
  needs: { member: 'topic', example: 'topic: site/ft101' },
  readSource: (raw, report) => readBroker('mqtt', raw, report),
  readValue,
  writing: messageWriting(MQTT_TOPICS, ({ url }) => [placeOf(url)]),
  groupOf: ({ share }) => share,
  hasTime: hasOwnTime,
  placeOf: ({ url }) => placeOf(url),
  addressOf: (_, value) => placeText(value),
  async open(context) {
    const { MqttSource } = await import('./mqtt-source.ts');
    return new MqttSource(context, await context.notes());
  },
  async *scan({ source, brokers, clock, signal }, what, waitMs) {
    const { scanMessages } = await import('../messages/scan.ts');
    const broker = brokers.get(source.name) as Broker;
    yield* scanMessages({ broker, what, waitMs, clock, signal });
  },
};

function readValue(raw: Members, report: MemberReport, template: Members): MessageValue | undefined {
  const topic = String(raw.topic);
  const wrong = wrongFilter(topic);
  if (wrong !== undefined) {
    const [reason, instead] = wrong;
    return report.problem('topic', `topic "${printable(topic)}" ${reason}`, instead);
  }
  if (raw.time_property !== undefined && raw.time !== undefined) {
    return report.problem('time_property', 'time_property and time are mutually exclusive', 'keep only one');
  }
  const members = readMessageMembers(raw, report, wrongTopic);
  const property = raw.time_property === undefined ? {} : { timeProperty: String(raw.time_property).toLowerCase() };
  return members && { topic, template: String(template.topic), ...members, ...property };
}
