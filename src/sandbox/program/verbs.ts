import type { Command } from 'commander';
import { stringify } from 'yaml';
import { counted } from '../../base/amounts.ts';
import { UsageError } from '../../base/errors.ts';
import { plain } from '../../base/foreign-text.ts';
import { nearestName } from '../../base/nearest.ts';
import { table } from '../../base/table.ts';
import { EVENT_TYPES, isEventType } from '../../contract/events.ts';
import type { Caused, EventRequest } from '../causes/cause.ts';
import { CAUSES } from '../causes/trigger.ts';
import { ASSET_ATTRIBUTES, EDGE_DEVICE_ATTRIBUTES } from '../events/updates.ts';
import { defaultSeed } from '../sandbox.ts';
import { nounOf } from '../site/records.ts';
import { adminVerb, asAdmin, DEFAULT_URL, duration, wholeNumber } from './admin-client.ts';
import { addFaultVerbs } from './fault-verbs.ts';
import type { SandboxFlags } from './flags.ts';
import { credentialsText, runSandbox } from './run.ts';

/** Adds `tagferry sandbox`. */
export function define(program: Command): void {
  const sandbox = program
    .command('sandbox')
    .description('run a local simulation of the asset data service, based on its specification')
    // Sandbox options must precede the verb and verb options must follow it, because --json exists in both.
    .enablePositionalOptions()
    .allowExcessArguments()
    .option('--listen <host:port>', 'listen address', '127.0.0.1:8480')
    .option('--admin-port <port>', 'second port for /sandbox/…, which stays open during an outage')
    .option('--identity-port <port>', 'port of {web_url}, separate from {base_url}')
    .option('--now <time>', 'start time of the clock, ISO 8601 (default: now)')
    .option('--seed <file>', 'YAML file with site, users and credentials (default: a small site)')
    .option('--speed <n>', 'speed of the clock', '1')
    .option('--values <all|count>', 'keep every value, or only counts', 'all')
    .option('--token-life <seconds>', 'lifetime of an access token (default: 660)')
    .option('--no-rotation', 'do not rotate the refresh token')
    .option('--per-minute <n>', 'requests per user per minute before 429; 0 means no limit (default: 500)')
    .option(
      '--drop-invalid',
      'accept posts with invalid values and discard those values, instead of responding with 400',
    )
    .option('--latency <ms>', 'delay of every response')
    .option('--fail-every <n>', 'respond to every n-th API call with --fail-status')
    .option('--fail-status <status>', 'status for --fail-every', '503')
    .option('--drop-every <n>', 'drop the response to every n-th API call')
    .option('--away <every/for>', 'refuse connections periodically, for example 5m/30s')
    .option('--expire-every <duration>', 'expire all access and refresh tokens periodically')
    .option('--webhook-ca <file>', 'PEM file of the CA that signs the certificates of webhook receivers')
    .option('--strict', 'reject requests that the specification does not strictly allow')
    .option('--quiet', 'do not print the request log')
    .option('--json', 'print the request log as JSON lines')
    .addHelpText('after', () => `\n${EXAMPLES}\n\n${credentialsText()}`)
    .action((flags: SandboxFlags, command: Command) => {
      const [unknown] = command.args;
      if (unknown === undefined) return runSandbox(flags);
      throw new UsageError(`unknown sandbox command ${unknown}`, hintFor(unknown, namesOf(command), 'sandbox --help'));
    });
  addCauseVerb(sandbox);
  addFaultVerbs(sandbox);
  addClockVerb(sandbox);
  addStatusVerb(sandbox);
  sandbox
    .command('seed')
    .description('print the default site as YAML')
    .addHelpText('after', '\nExample:\n  tagferry sandbox seed > site.yaml && tagferry sandbox --seed site.yaml')
    .action(() => void process.stdout.write(stringify(defaultSeed, { aliasDuplicateObjects: false })));
}

const EXAMPLES = `Without a verb, the sandbox runs in the foreground. The verbs control a running sandbox, by default at ${DEFAULT_URL}:
  tagferry sandbox --speed 72
  tagferry sandbox cause threshold_reached FT-101 --value 25
  tagferry sandbox fault offline --for 30s
  tagferry sandbox clock advance 11m`;

const namesOf = (command: Command) => command.commands.map((verb) => verb.name());

/** Returns a hint that suggests a similar known name, if any, and the command that lists all names. */
function hintFor(text: string, known: Iterable<string>, listing: string): string {
  const nearest = nearestName(text, known);
  return `${nearest?.likely ? `Did you mean ${nearest.name}? ` : ''}Run \`tagferry ${listing}\` to list all.`;
}

type CauseFlags = Partial<Record<'key' | 'value' | 'unit' | 'name' | 'status' | 'type', string>> & {
  set: string[];
  times: string;
};

/** Adds `tagferry sandbox cause`, which triggers any of the 23 event types (platform 6.3). */
function addCauseVerb(sandbox: Command): void {
  const command = adminVerb(sandbox.command('cause'))
    .description('trigger an event; without a type, list all 23 types')
    .argument('[event_type]', 'for example threshold_reached')
    .argument('[object]', 'id or name; default: a suitable object')
    .argument('[to]', 'id or name of the second object, for event types with two objects')
    .option('--key <key>', 'value or specification key')
    .option('--value <value>', 'value to post or set')
    .option('--unit <code>', 'unit code, for example degree_celsius')
    .option('--name <text>', 'name of the new event, software or document, or a diagnosis code')
    .option('--status <code>', 'code or ID of the status')
    .option('--type <code>', 'code or ID of the type of an event')
    .option(
      '--set <name=value>',
      'attribute for asset_updated or edge_device_updated, can be repeated',
      (text: string, previous: string[]) => [...previous, text],
      [],
    )
    .option('--times <n>', 'number of events', '1')
    .addHelpText('after', CAUSE_EXAMPLES);
  command.action((type: string | undefined, object: string | undefined, to: string | undefined, flags: CauseFlags) =>
    asAdmin(command, async (client, show) => {
      if (type === undefined)
        return show(
          causesText(),
          EVENT_TYPES.map((event_type) => ({ event_type, ...CAUSES[event_type] })),
        );
      if (!isEventType(type)) {
        throw new UsageError(`${type} is not an event type`, hintFor(type, EVENT_TYPES, 'sandbox cause'));
      }
      if (to !== undefined && CAUSES[type].to === undefined) {
        throw new UsageError(`${type} has only one object`, `Omit ${JSON.stringify(to)}.`);
      }
      const request = { ...(object && { object }), ...(to && { to }), ...membersOf(type, flags) };
      const all: Caused[] = [];
      for (let left = wholeNumber('--times', flags.times); left > 0; left--) {
        all.push(await client.send<Caused>('POST', `causes/${type}`, request));
      }
      show(all.map(causedText).join('\n'), all.length === 1 ? all[0] : all);
    }),
  );
}

const CAUSE_EXAMPLES = `
Examples:
  tagferry sandbox cause                                      list the types with their objects and options
  tagferry sandbox cause threshold_reached FT-101 --value 25
  tagferry sandbox cause asset_values_created 881 --key temperature --value 21.5 --unit degree_celsius --times 5
  tagferry sandbox cause asset_updated 881 --status failure
  tagferry sandbox cause asset_updated 881 --set description="Inlet, replaced"
  tagferry sandbox cause asset_instrumentation_association_created 901 FT-101
  tagferry sandbox cause event_created 881 --name "Yearly check" --type calibration`;

/** Converts flags to request members. Throws `UsageError` for a flag that the event type does not support. */
function membersOf(type: keyof typeof CAUSES, { set, times: _times, ...flags }: CauseFlags): EventRequest {
  const { takes } = CAUSES[type];
  const attributes = type === 'asset_updated' ? ASSET_ATTRIBUTES : EDGE_DEVICE_ATTRIBUTES;
  const changes = set.map((word) => {
    const [, name = '', text = ''] = /^([^=]+)=(.*)$/s.exec(word) ?? [];
    if (name === '')
      throw new UsageError(`${JSON.stringify(word)} is not name=value`, 'Use a value such as status=71.');
    return [name, attributes[name] !== 'text' && /^\d+$/.test(text) ? Number(text) : text];
  });
  const members = Object.entries(flags)
    .filter(([name]) => name in FLAG_MEMBERS)
    .map(([name, text]) => [name, FLAG_MEMBERS[name] === 'number' && isNumber(text) ? Number(text) : text]);
  const request = Object.fromEntries([
    ...members,
    ...(set.length > 0 ? [['changes', Object.fromEntries(changes)]] : []),
  ]);
  const surplus = Object.keys(request).find((name) => !(takes as readonly string[]).includes(name));
  if (surplus === undefined) return request;
  const accepted = takes.length === 0 ? 'It accepts no such options.' : `It accepts ${optionsOf(takes).join(', ')}.`;
  throw new UsageError(`${type} does not accept ${optionsOf([surplus])[0]}`, accepted);
}

/** Flags that correspond to request members. A specification value, status or type may be a number or text. */
const FLAG_MEMBERS: Readonly<Record<string, 'text' | 'number'>> = {
  key: 'text',
  unit: 'text',
  name: 'text',
  value: 'number',
  status: 'number',
  type: 'number',
};

const isNumber = (text: unknown) => String(text).trim() !== '' && Number.isFinite(Number(text));
const optionsOf = (members: readonly string[]) => members.map((name) => `--${name === 'changes' ? 'set' : name}`);

function causesText(): string {
  const rows = EVENT_TYPES.map((type) => {
    const { object, to, takes } = CAUSES[type];
    return [type, to === undefined ? object : `${object} ${to}`, optionsOf(takes).join(' ')];
  });
  return table([['event type', 'object', 'options'], ...rows]);
}

function causedText({ event_type, object, deliveries, note }: Caused): string {
  const to = deliveries === 0 ? `to no webhook: ${note}` : `to ${counted(deliveries, 'webhook')}`;
  return `${event_type} (${nounOf(object.kind)} ${object.id}), sent ${to}`;
}

interface SandboxStatus {
  url: string;
  time: string;
  speed: number;
  outage: unknown;
  values: { stored: number; posts: number };
  tokens: { alive: number };
  webhooks: number;
  deliveries: Record<string, number>;
  requests: number;
}

function addClockVerb(sandbox: Command): void {
  const clock = adminVerb(sandbox.command('clock'))
    .description('show, advance or speed up the sandbox clock')
    .argument('[action]', 'advance, to or speed')
    .argument('[amount]', 'duration, time or factor')
    .addHelpText('after', CLOCK_EXAMPLES);
  clock.action((action: string | undefined, amount: string | undefined) =>
    asAdmin(clock, async (client, show) => {
      const body = action === undefined ? undefined : clockBody(action, amount);
      const { time, speed } = await client.send<SandboxStatus>(body ? 'POST' : 'GET', body ? 'clock' : 'status', body);
      show(`${time}, speed ${speed}`, { time, speed });
    }),
  );
}

const CLOCK_EXAMPLES = `
Examples:
  tagferry sandbox clock
  tagferry sandbox clock advance 11m      access tokens expire
  tagferry sandbox clock to 2027-05-02T00:00:00Z
  tagferry sandbox clock speed 60`;

function clockBody(action: string, amount = ''): object {
  if (amount !== '' && action === 'to') return { to: amount };
  if (amount !== '' && action === 'advance') return { advanceMs: duration('advance', amount) };
  if (action === 'speed' && Number(amount) > 0) return { speed: Number(amount) };
  const hint = 'Use `clock advance 11m`, `clock to 2027-05-02T00:00:00Z` or `clock speed 60`.';
  throw new UsageError(`clock ${action} ${amount} is not valid`, hint);
}

function addStatusVerb(sandbox: Command): void {
  const status = adminVerb(sandbox.command('status')).description('show the state of a running sandbox');
  status.action(() =>
    asAdmin(status, async (client, show) => {
      const now = await client.send<SandboxStatus>('GET', 'status');
      const { delivered = 0, pending = 0, failed = 0 } = now.deliveries;
      const rows = [
        ['address', now.url],
        ['time', `${now.time}, speed ${now.speed}`],
        ['platform', now.outage === null ? 'available' : `unavailable (${plain(JSON.stringify(now.outage))})`],
        ['values', `${now.values.stored} in ${counted(now.values.posts, 'post')}`],
        ['valid tokens', String(now.tokens.alive)],
        ['webhooks', String(now.webhooks)],
        ['deliveries', `${delivered} delivered, ${pending} pending, ${failed} failed`],
        ['requests', String(now.requests)],
      ];
      show(table(rows), now);
    }),
  );
}
