import { programEnvironment } from '../base/programs/environment.ts';
import { valuesAt } from './content-path.ts';
import type { EventFacts } from './event-facts.ts';

const MAX_VALUE = 1_000;

/** Variable and where in the payload it comes from; left out where the event does not say. */
const FIELDS: readonly (readonly [string, string])[] = [
  ['TAGFERRY_OCCURRED_AT', 'occurred_at'],
  ['TAGFERRY_OCCURRED_AT', 'occured_at'],
  ['TAGFERRY_NODE_ID', 'content.node.id'],
  ['TAGFERRY_KEY', 'content.data.key'],
  ['TAGFERRY_VALUE', 'content.data.value'],
  ['TAGFERRY_UNIT', 'content.data.unit.code'],
  ['TAGFERRY_VALUE_TIMESTAMP', 'content.data.timestamp'],
  ['TAGFERRY_THRESHOLD_TYPE', 'content.threshold.type'],
  ['TAGFERRY_THRESHOLD_NAME', 'content.threshold.name'],
  ['TAGFERRY_THRESHOLD_VALUE', 'content.threshold.value'],
];

/** The environment of one command: what it may inherit, the event's main fields, and the mark. */
export function commandEnvironment(
  inherited: NodeJS.ProcessEnv,
  reaction: string,
  event: EventFacts,
  mark: string,
): Record<string, string> {
  const environment = programEnvironment(inherited, mark);
  const put = (name: string, value: unknown) => {
    if (typeof value === 'object' || value === undefined || name in environment) return;
    // execve takes no NUL.
    environment[name] = String(value).replaceAll('\0', '').slice(0, MAX_VALUE);
  };
  put('TAGFERRY_REACTION', reaction);
  put('TAGFERRY_EVENT_ID', event.id);
  put('TAGFERRY_EVENT_TYPE', event.eventType);
  put('TAGFERRY_ASSET_ID', event.assets[0]);
  put('TAGFERRY_INSTRUMENTATION_ID', event.instrumentations[0]);
  put('TAGFERRY_TAG', event.tag);
  for (const [name, path] of FIELDS) put(name, valuesAt(event.envelope, path)[0]);
  return environment;
}
