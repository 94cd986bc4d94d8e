import type { Command } from 'commander';
import { counted } from '../../base/amounts.ts';
import { UsageError } from '../../base/errors.ts';
import { table } from '../../base/table.ts';
import { EVENT_TYPES, isEventType } from '../../contract/events.ts';
import type { Caused, EventRequest } from '../causes/cause.ts';
import { CAUSES } from '../causes/trigger.ts';
import { nounOf } from '../site/records.ts';
import { type AdminClient, adminVerb, asAdmin } from './admin-client.ts';
import { idOf, membersOf, nearestHint } from './named-records.ts';

interface CauseFlags {
  key?: string;
  value?: string;
  unit?: string;
  name?: string;
  status?: string;
  type?: string;
  set: string[];
  times: string;
}

/** Adds `tagferry sandbox cause`: each of the 23 event types of platform 6.3 by hand. */
export function addCauseVerb(sandbox: Command): void {
  const command = adminVerb(sandbox.command('cause'))
    .description('make something happen that an event tells of; without a type: the list of all 23')
    .argument('[event_type]', 'for example threshold_reached')
    .argument('[object]', 'id or name; something that fits unless told')
    .argument('[to]', 'the other object, where there are two')
    .option('--key <key>', 'value or specification key')
    .option('--value <value>', 'the value that is posted or set')
    .option('--unit <code>', 'for example degree_celsius')
    .option('--name <text>', 'of the event, software or document that is made, or a diagnosis code')
    .option('--status <code>', 'code or id of the status')
    .option('--type <code>', 'code or id of the type of an event')
    .option('--set <name=value>', 'attribute for asset_updated and edge_device_updated; may be repeated', collected, [])
    .option('--times <n>', 'so often', '1')
    .addHelpText('after', EXAMPLES);
  command.action((type: string | undefined, object: string | undefined, to: string | undefined, flags: CauseFlags) =>
    asAdmin(command, async (client, show) => {
      if (type === undefined) return show(listText(), listData());
      if (!isEventType(type)) {
        const hint = nearestHint(type, EVENT_TYPES, '`tagferry sandbox cause` lists all of them.');
        throw new UsageError(`${JSON.stringify(type)} is no event type`, hint);
      }
      const times = wholeNumber('--times', flags.times);
      const cause = CAUSES[type];
      if (to !== undefined && cause.to === undefined) {
        throw new UsageError(`${type} has one object, not two`, `Leave out ${JSON.stringify(to)}.`);
      }
      const request = await eventRequestOf(client, type, object, to, flags);
      const all: Caused[] = [];
      for (let i = 0; i < times; i++) all.push(await client.send<Caused>('POST', `causes/${type}`, request));
      show(all.map(causedText).join('\n'), all.length === 1 ? all[0] : all);
    }),
  );
}

const EXAMPLES = `
Examples:
  tagferry sandbox cause                                      what each type does and takes
  tagferry sandbox cause threshold_reached FT-101 --value 25
  tagferry sandbox cause asset_values_created 881 --key temperature --value 21.5 --unit degree_celsius --times 5
  tagferry sandbox cause asset_updated 881 --status failure
  tagferry sandbox cause asset_updated 881 --set description="Inlet, replaced"
  tagferry sandbox cause asset_instrumentation_association_created 901 FT-101
  tagferry sandbox cause event_created 881 --name "Yearly check" --type calibration`;

async function eventRequestOf(
  client: AdminClient,
  type: keyof typeof CAUSES,
  object: string | undefined,
  to: string | undefined,
  flags: CauseFlags,
): Promise<EventRequest> {
  const cause = CAUSES[type];
  const request: EventRequest = {};
  if (object !== undefined) request.object = await idOf(client, cause.object, object);
  if (to !== undefined && cause.to !== undefined) request.to = await idOf(client, cause.to, to);
  for (const name of ['key', 'unit', 'name'] as const) {
    const text = flags[name];
    if (text !== undefined) request[name] = text;
  }
  for (const name of ['value', 'status', 'type'] as const) {
    const text = flags[name];
    // A specification may be text; what is a number is sent as one.
    if (text !== undefined) request[name] = text.trim() !== '' && Number.isFinite(Number(text)) ? Number(text) : text;
  }
  if (flags.set.length > 0) request.changes = membersOf(flags.set, cause.object);
  const surplus = Object.keys(request).find((name) => {
    return name !== 'object' && name !== 'to' && !cause.takes.includes(name as keyof EventRequest);
  });
  if (surplus !== undefined) {
    const takes = cause.takes.map((name) => (name === 'changes' ? '--set' : `--${name}`)).join(', ');
    throw new UsageError(
      `${type} does not look at --${surplus === 'changes' ? 'set' : surplus}`,
      takes === '' ? 'It takes no option of that kind.' : `It takes ${takes}.`,
    );
  }
  return request;
}

function causedText({ event_type, object, deliveries, note }: Caused): string {
  const whom = deliveries === 0 ? `to no webhook: ${note}` : `to ${counted(deliveries, 'webhook')}`;
  return `${event_type} (${nounOf(object.kind)} ${object.id}), sent ${whom}`;
}

function listText(): string {
  const rows = EVENT_TYPES.map((type) => {
    const { object, to, takes } = CAUSES[type];
    const options = takes.map((name) => (name === 'changes' ? '--set' : `--${name}`)).join(' ');
    return [type, to === undefined ? object : `${object} ${to}`, options];
  });
  return table([['event type', 'object', 'options'], ...rows]);
}

function listData() {
  return EVENT_TYPES.map((event_type) => {
    const { does, object, to, takes } = CAUSES[event_type];
    return { event_type, does, object, ...(to === undefined ? {} : { to }), takes };
  });
}

function collected(text: string, before: string[]): string[] {
  return [...before, text];
}

export function wholeNumber(flag: string, text: string): number {
  if (!/^\d{1,9}$/.test(text)) throw new UsageError(`${flag} ${text} is no whole number`);
  return Number(text);
}
