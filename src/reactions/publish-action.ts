import { codeOf, messageOf } from '../base/errors.ts';
import type { Action } from '../config/reactions.ts';
import type { ActionContext, ActionResult } from './action.ts';
import { fillBody, fillTopic } from './template.ts';

type PublishAction = Extract<Action, { kind: 'publish' }>;

/** Codes after a wait in vain: for the connection, or for the confirmation of the message. */
const NOT_CONNECTED = 'broker.away';
const NOT_CONFIRMED: ReadonlySet<string> = new Set(['broker.busy', 'broker.closed', 'broker.ended']);

/** How a message leaves: resolves once the broker has confirmed it (QoS 1). The lead hands `Brokers.publish` in. */
export type Publish = (
  broker: string,
  topic: string,
  payload: string,
  options: { retain: boolean; signal: AbortSignal },
) => Promise<void>;

/** Publishes the event, or the rule's body, with QoS 1. */
export async function publishEvent(
  action: PublishAction,
  context: ActionContext,
  publish: Publish,
): Promise<ActionResult> {
  const { event, signal } = context;
  if (signal.aborted) return { outcome: 'interrupted' };
  const topic = fillTopic(action.topic, event.envelope, action.isSubject ? 'subject' : 'topic');
  const { text } = fillBody(action.body, event);
  try {
    await publish(action.broker, topic, text, { retain: action.retain, signal });
    return { outcome: 'done', detail: topic.slice(0, 200) };
  } catch (error) {
    if (signal.aborted) return { outcome: 'interrupted' };
    return { outcome: 'failed', detail: messageOf(error), timedOut: isTimeout(error) };
  }
}

function isTimeout(error: unknown): boolean {
  const { cause } = error as { cause?: unknown };
  return codeOf(error) === NOT_CONNECTED || NOT_CONFIRMED.has(codeOf(cause) ?? '') || isNamedTimeout(cause);
}

/** The error of the NATS client. */
function isNamedTimeout(cause: unknown): boolean {
  return cause instanceof Error && cause.name === 'TimeoutError';
}
