import { valuesAt } from '../../../../src/reactions/content-path.ts';
import { readFacts } from '../../../../src/reactions/event-facts.ts';
import { fillBody, fillTopic, fillValue } from '../../../../src/reactions/template.ts';
import { demand, type FuzzTarget, headAndRest } from '../target.ts';

/** The first line is a template of a tag or topic, the rest is an event. */
const template: FuzzTarget = {
  name: 'template',
  seeds: [
    'plant/{{content.asset.id}}/x\n{"event_type":"a","content":{"asset":{"id":"a/b#+"}}}',
    '{{ content.values.0.key }} {{content.values.key}}\n{"content":{"values":[{"key":"k"},{"key":{"a":1}}]}}',
    '{{content.a.b}}\n{"content":{"a.b":[[1]],"a":{"b":2},"__proto__":{"x":1}}}',
    '{{content}}{{event_type}}\n{"event_type":"\\u0000/\\u007f","content":null}',
  ],
  run(bytes) {
    const { head, rest } = headAndRest(bytes);
    const payload = rest.toString('utf8');
    const envelope = objectOf(payload);
    const topic = fillTopic(head, envelope);
    const levels = (text: string) => text.split('/').length;
    demand(levels(topic) <= levels(head), 'an event chose another level of the topic');
    for (const wildcard of ['+', '#', '\u0000']) {
      demand(head.includes(wildcard) || !topic.includes(wildcard), 'an event brought a wildcard into the topic');
    }
    for (const body of [head, { a: head, b: [head] }, undefined]) {
      const filled = fillBody(body, { payload, envelope });
      if (filled.isJson && body !== undefined) JSON.parse(filled.text);
    }
    fillValue([[head]], envelope);
    demand(valuesAt(envelope, head).length <= 10_000, 'a path finds more than it may');
    const facts = readFacts({ envelope, payload, eventType: 'x', id: 1, occurredAtMs: 0 } as never);
    demand(facts.assets.every(Number.isSafeInteger), 'an asset without a number');
  },
};

function objectOf(text: string): Record<string, unknown> {
  try {
    const found: unknown = JSON.parse(text);
    return typeof found === 'object' && found !== null && !Array.isArray(found)
      ? (found as Record<string, unknown>)
      : {};
  } catch {
    return {};
  }
}

export const REACTIONS = [template];
