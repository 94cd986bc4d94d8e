import { codeOf, messageOf } from '../../base/errors.ts';
import type { Action } from '../../config/action-kinds.ts';
import { printable } from '../../config/problem.ts';
import { wrongSubject, wrongTopic } from '../../config/topics.ts';
import type { ActionKind } from '../action-kind.ts';
import { fillBody, fillTopic } from '../template.ts';

interface PublishAction extends Action {
  kind: 'publish';
  broker: string;
  topic: string;
  isSubject?: true;
  body?: unknown;
  retain: boolean;
}

const NOT_CONNECTED = 'broker.away';
const NOT_CONFIRMED: ReadonlySet<string> = new Set(['broker.closed', 'broker.ended']);

/** Publishes the event, or `body`, with QoS 1. */
export const PUBLISH: ActionKind<PublishAction> = {
  kind: 'publish',
  shape: {
    type: 'object',
    title: 'a mapping with a source and a topic',
    description: 'Publishes to a topic of an MQTT broker with QoS 1, or to a NATS subject.',
    examples: [{ to: 'broker', topic: 'site/alarms' }],
    additionalProperties: false,
    required: ['to', 'topic'],
    properties: {
      to: {
        type: 'string',
        title: 'the name of an mqtt or nats source',
        description: 'Name of an mqtt, sparkplug or nats source in tags.yaml.',
        examples: ['broker'],
      },
      topic: {
        type: 'string',
        minLength: 1,
        maxLength: 1024,
        title: 'a topic',
        description: 'MQTT topic or NATS subject, with templates such as {{content.asset.id}}.',
        examples: ['site/alarms'],
      },
      body: { description: 'Content to send instead of the event.' },
      retain: { type: 'boolean', default: false, title: 'true or false', examples: [true] },
    },
  },
  templates: ['publish/topic', 'publish/body'],

  read({ publish }, report) {
    const { to, topic, body, retain } = publish as { to: string; topic: string; body?: unknown; retain?: boolean };
    const levels = report.broker('publish/to', to);
    const isSubject = levels === 'subject';
    const isRetainedSubject = isSubject && retain === true;
    if (isRetainedSubject) report.problem('publish/retain', 'retain is not supported by NATS', 'remove it', 'retain');
    const wrong = isSubject ? wrongSubject(topic, 'plain') : wrongTopic(topic);
    if (wrong !== undefined) {
      const instead = isSubject ? 'use one subject, for example site.alarms' : 'use one topic, for example site/alarms';
      report.problem('publish/topic', `topic "${printable(topic)}" ${wrong}`, instead, topic);
    }
    if (levels === undefined || isRetainedSubject || wrong !== undefined) return undefined;
    return {
      kind: 'publish',
      broker: to,
      topic,
      ...(isSubject ? { isSubject } : {}),
      ...(body === undefined ? {} : { body }),
      retain: retain ?? false,
    };
  },
  sourceOf: ({ broker }) => broker,

  nameOf: ({ broker, topic }) => `publish ${broker} ${topic}`,
  targetOf: ({ broker }) => `publish ${broker}`,

  async perform(action, { event, signal }, { publish }) {
    const topic = fillTopic(action.topic, event.envelope, action.isSubject ? 'subject' : 'topic');
    const { text } = fillBody(action.body, event);
    try {
      await publish(action.broker, topic, text, { retain: action.retain, signal });
      return { outcome: 'done', detail: topic.slice(0, 200) };
    } catch (error) {
      if (signal.aborted) return { outcome: 'interrupted' };
      return { outcome: 'failed', detail: messageOf(error), timedOut: isTimeout(error) };
    }
  },
};

function isTimeout(error: unknown): boolean {
  const { cause } = error as { cause?: unknown };
  // The NATS client reports a timeout without an error code.
  const isNatsTimeout = cause instanceof Error && cause.name === 'TimeoutError';
  return codeOf(error) === NOT_CONNECTED || NOT_CONFIRMED.has(codeOf(cause) ?? '') || isNatsTimeout;
}
