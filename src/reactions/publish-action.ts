import { messageOf } from '../base/errors.ts';
import type { Action } from '../config/reactions.ts';
import type { ActionContext, ActionResult } from './action.ts';
import { fillBody, fillTopic } from './template.ts';

type PublishAction = Extract<Action, { kind: 'publish' }>;

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
    return signal.aborted ? { outcome: 'interrupted' } : { outcome: 'failed', detail: messageOf(error) };
  }
}
