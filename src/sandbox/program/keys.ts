import { counted } from '../../base/amounts.ts';
import type { EventType } from '../../contract/events.ts';
import type { Caused, EventRequest, Sandbox } from '../sandbox.ts';
import { nounOf } from '../site/records.ts';

/** One key, one happening. */
export interface Key {
  key: string;
  /** For the help line: "a value is posted". */
  what: string;
  /** The event types that it triggers; none where it is about the platform itself. */
  causes: readonly EventType[];
  /** Gives the line that is printed. */
  press(sandbox: Sandbox): string | Promise<string>;
}

/** The keyboard of a sandbox: every event type of platform 6.3 and the faults that are met most. Toggles remember what they did last. */
export function keysOf(): readonly Key[] {
  return [
    {
      key: 'v',
      what: 'value posted',
      causes: ['asset_value_created', 'asset_values_created', 'instrumentation_values_created'],
      press: (sandbox) => {
        const types = ['asset_value_created', 'asset_values_created', 'instrumentation_values_created'] as const;
        const before = types.map((type) => sandbox.deliveriesOf(type));
        const { object } = sandbox.cause('instrumentation_values_created');
        const sent = types.map((type, index) => sandbox.deliveriesOf(type) - before[index]!);
        return `a value for instrumentation ${object.id}: ${types.map((type, index) => `${type} to ${sent[index]}`).join(', ')}`;
      },
    },
    one('t', 'threshold reached', 'threshold_reached'),
    one('u', 'asset updated', 'asset_updated'),
    one('w', 'software added', 'asset_software_added'),
    one('s', 'asset specification', 'asset_specifications_updated'),
    one('c', 'health condition', 'asset_health_condition_updated'),
    toggle('a', 'asset gone / back', 'asset_disappeared', 'asset_appeared'),
    toggle('i', 'instrumentation gone / back', 'instrumentation_disappeared', 'instrumentation_appeared'),
    toggle('n', 'node gone / back', 'node_disappeared', 'node_appeared'),
    toggle(
      'r',
      'relation ends / begins',
      'asset_instrumentation_association_destroyed',
      'asset_instrumentation_association_created',
    ),
    one('e', 'event made', 'event_created'),
    one('d', 'document for an event', 'event_document_created'),
    one('k', 'event specification', 'event_specifications_updated'),
    one('p', 'product status', 'product_status_changed'),
    one('g', 'edge device', 'edge_device_updated'),
    toggle('l', 'add-on linked / taken', 'add_on_node_association_created', 'add_on_node_association_destroyed'),
    fault('o', 'platform away / back', async (sandbox) => {
      if (sandbox.outage === undefined) await sandbox.goOffline('drop');
      else await sandbox.goOnline();
      return sandbox.outage === undefined ? 'the platform answers' : 'the platform breaks every connection';
    }),
    fault('f', 'next call answers 503', (sandbox) => {
      sandbox.faults.add({ path: '/v*', status: 503, times: 1 });
      return 'the next API call is answered 503';
    }),
    fault('y', 'next answer is lost', (sandbox) => {
      sandbox.faults.add({ path: '/v*', drop: 'after', times: 1 });
      return 'the next API call is done, but its answer is lost';
    }),
    fault('x', 'tokens expire', (sandbox) => {
      sandbox.tokens.expireAll(false);
      return 'every access token is expired';
    }),
    fault('m', 'an hour passes', (sandbox) => {
      sandbox.clock.advance(3_600_000);
      return `it is ${new Date(sandbox.clock.wallMs()).toISOString().slice(0, 19).replace('T', ' ')}`;
    }),
  ];
}

/** The help, two lines for a wide terminal, more for a narrow one. */
export function helpText(keys: readonly Key[], width: number): string {
  const words = [...keys.map(({ key, what }) => `${key} ${what}`), '? help', 'Ctrl-C stops'];
  const lines: string[] = [];
  let line = 'Keys:';
  for (const word of words) {
    if (line.length + word.length + 3 > width) {
      lines.push(line);
      line = '     ';
    }
    line += line.trim() === 'Keys:' || line.trim() === '' ? ` ${word}` : ` · ${word}`;
  }
  return [...lines, line].join('\n');
}

function one(key: string, what: string, type: EventType): Key {
  return { key, what, causes: [type], press: (sandbox) => lineOf(sandbox.cause(type)) };
}

/** The first event, and at the next press the other one for the same object. */
function toggle(key: string, what: string, first: EventType, second: EventType): Key {
  let undone: EventRequest | undefined;
  return {
    key,
    what,
    causes: [first, second],
    press: (sandbox) => {
      const type = undone === undefined ? first : second;
      const caused = sandbox.cause(type, undone);
      undone = undone === undefined ? { object: caused.object.id, ...toOf(caused) } : undefined;
      return lineOf(caused);
    },
  };
}

function toOf({ to }: Caused): EventRequest {
  return to === undefined ? {} : { to: to.id };
}

function fault(key: string, what: string, press: Key['press']): Key {
  return { key, what, causes: [], press };
}

function lineOf({ event_type, object, deliveries, note }: Caused): string {
  return `${event_type} (${nounOf(object.kind)} ${object.id}): ${deliveries > 0 ? `to ${counted(deliveries, 'webhook')}` : note}`;
}
