import type { Command } from 'commander';
import { UsageError } from '../../base/errors.ts';
import { plain } from '../../base/foreign-text.ts';
import { nearestName } from '../../base/nearest.ts';
import { table } from '../../base/table.ts';
import { type AdminClient, adminVerb, asAdmin, duration, wholeNumber } from './admin-client.ts';

type Flags = Readonly<Record<string, string | boolean | undefined>>;
type Reading = 'text' | 'whole' | 'number' | 'duration' | 'flag';
/** Option of a fault: flag with its argument, description, request member, and type of its value. */
type Option = readonly [flags: string, description: string, member: string, reading: Reading];

interface Fault {
  description: string;
  /** Argument as `<name>` or `[name]`, its description, and a function that converts its text to request members. */
  argument?: readonly [name: string, description: string, read: (text: string) => object];
  options?: readonly Option[];
  endpoint: string;
  done(text: string, body: object, reply: { id?: number } | undefined): string;
}

const MATCH: readonly Option[] = [
  ['--method <method>', 'request method', 'method', 'text'],
  ['--path <path>', 'request path, or a prefix followed by *', 'path', 'text'],
  ['--asset <id>', 'asset ID in the request', 'asset', 'whole'],
  ['--nth <n>', 'only the n-th matching request', 'nth', 'whole'],
  ['--every <n>', 'every n-th matching request', 'every', 'whole'],
  ['--times <n>', 'number of requests after which the fault ends', 'times', 'whole'],
  ['--retry-after <s>', 'Retry-After value; requires a status', 'retryAfter', 'text'],
];
const requestFault = {
  options: MATCH,
  endpoint: 'POST faults',
  done: (_text: string, _body: object, reply: { id?: number } | undefined) =>
    `Fault ${reply?.id} set. Remove it with \`fault rm ${reply?.id}\`.`,
};

const FAULTS: Readonly<Record<string, Fault>> = {
  latency: {
    description: 'delay responses',
    argument: ['<duration>', 'for example 500ms', (text) => ({ latencyMs: duration('latency', text) })],
    ...requestFault,
  },
  status: {
    description: 'respond with this status without processing the request',
    argument: ['<status>', '200 to 599, for example 503 or 429', (text) => ({ status: wholeNumber('status', text) })],
    ...requestFault,
  },
  drop: {
    description: 'close connections without a response',
    argument: [
      '[when]',
      'before: without processing the request; after: only the response is lost (default)',
      (text) => {
        if (text !== '' && text !== 'before' && text !== 'after') {
          throw new UsageError(`drop must be before or after, not ${text}`);
        }
        return { drop: text || 'after' };
      },
    ],
    ...requestFault,
  },
  offline: {
    description: 'make the platform unavailable',
    options: [
      [
        '--mode <mode>',
        'refuse connections (refuse, default), close them (drop), or respond with a status',
        'mode',
        'text',
      ],
      ['--for <duration>', 'duration of the outage; required with refuse without --admin-port', 'forMs', 'duration'],
    ],
    endpoint: 'POST offline',
    done: () => 'Platform unavailable.',
  },
  online: { description: 'end the outage', endpoint: 'POST online', done: () => 'Platform available.' },
  expire: {
    description: 'expire every access token',
    options: [['--refresh', 'expire every refresh token too', 'refresh', 'flag']],
    endpoint: 'POST tokens/expire',
    done: (_text, body) => `All access tokens${'refresh' in body ? ' and refresh tokens' : ''} expired.`,
  },
  revoke: { description: 'revoke every token', endpoint: 'POST tokens/revoke', done: () => 'All tokens revoked.' },
  poison: {
    description: 'reject every post that contains a matching value',
    options: [
      ['--asset <id>', 'asset of the value', 'asset', 'whole'],
      ['--key <key>', 'key of the value', 'key', 'text'],
      ['--value <number>', 'the value', 'value', 'number'],
      ['--status <status>', 'status of the response (default: 400)', 'status', 'whole'],
    ],
    endpoint: 'POST poison',
    done: () => 'Posts with such a value are rejected.',
  },
  rate: {
    description: 'set the number of requests per user per minute; 0 means no limit',
    argument: ['<n>', 'requests per minute', (text) => ({ perUser: wholeNumber('rate', text) })],
    options: [['--retry-after', 'send Retry-After with 429', 'retryAfter', 'flag']],
    endpoint: 'PATCH limits',
    done: (text) => (text === '0' ? 'No rate limit.' : `${text} requests per user per minute.`),
  },
  webhook: {
    description: 'tamper with webhook deliveries; without a kind, list the kinds and how receivers responded',
    argument: ['[kind]', 'for example forged, duplicate or delayed', (kind) => ({ kind })],
    options: [
      ['--webhook <id>', 'webhook of the deliveries', 'webhook', 'whole'],
      ['--event <type>', 'event type', 'event_type', 'text'],
      ['--every <n>', 'every n-th matching delivery', 'every', 'whole'],
      ['--times <n>', 'number of deliveries after which the fault ends', 'times', 'whole'],
      ['--delay <duration>', 'with delayed and reordered: maximum delay', 'delayMs', 'duration'],
    ],
    endpoint: 'POST webhook-faults',
    done: (_text, _body, reply) => `Webhook fault ${reply?.id} set. Remove all faults with \`fault clear\`.`,
  },
  rm: {
    description: 'remove a fault',
    argument: ['<id>', 'number of the fault', (text) => ({ id: wholeNumber('rm', text) })],
    endpoint: 'DELETE faults/',
    done: (text) => `Fault ${text} removed.`,
  },
  clear: { description: 'remove all faults', endpoint: 'DELETE faults', done: () => 'All faults removed.' },
};

/** Adds `tagferry sandbox fault`. */
export function addFaultVerbs(sandbox: Command): void {
  const fault = adminVerb(sandbox.command('fault'))
    .description('set and clear faults; without a fault, list the active ones')
    .addHelpText('after', EXAMPLES)
    .enablePositionalOptions()
    .allowExcessArguments();
  fault.action((_flags, command: Command) => {
    const [unknown] = command.args;
    if (unknown === undefined) return asAdmin(fault, list);
    const nearest = nearestName(unknown, Object.keys(FAULTS));
    const hint = `${nearest?.likely ? `Did you mean ${nearest.name}? ` : ''}Run \`tagferry sandbox fault --help\` to list the faults.`;
    throw new UsageError(`unknown fault ${unknown}`, hint);
  });
  for (const [name, one] of Object.entries(FAULTS)) addFault(fault, name, one);
}

const EXAMPLES = `
Examples:
  tagferry sandbox fault                                     list active faults
  tagferry sandbox fault status 503 --times 3                the next three requests
  tagferry sandbox fault status 429 --retry-after 7 --asset 881
  tagferry sandbox fault latency 500ms --path "/v1/*"
  tagferry sandbox fault drop after --every 5
  tagferry sandbox fault offline --for 30s
  tagferry sandbox fault expire --refresh
  tagferry sandbox fault webhook forged --times 3
  tagferry sandbox fault clear`;

function addFault(fault: Command, name: string, { description, argument, options = [], endpoint, done }: Fault): void {
  const command = adminVerb(fault.command(name)).description(description);
  if (argument) command.argument(argument[0], argument[1]);
  for (const [flags, text] of options) command.option(flags, text);
  command.action((...args: unknown[]) =>
    asAdmin(command, async (client, show) => {
      const text = typeof args[0] === 'string' ? args[0] : '';
      if (name === 'webhook' && text === '') return listWebhookFaults(client, show);
      const [method = 'POST', path = ''] = endpoint.split(' ');
      const body = { ...argument?.[2](text), ...readOptions(options, command.opts<Flags>()) };
      const isPath = path.endsWith('/');
      const reply = await client.send<{ id?: number } | undefined>(
        method as 'POST' | 'PATCH' | 'DELETE',
        isPath ? path + text : path,
        Object.keys(body).length === 0 || isPath ? undefined : body,
      );
      show(done(text, body, reply), { fault: name, ...body, ...reply });
    }),
  );
}

function readOptions(options: readonly Option[], flags: Flags): object {
  const read = options.flatMap(([option, , member, reading]) => {
    const flag = option.split(' ')[0]!;
    const text = flags[flag.slice(2).replaceAll(/-(\w)/g, (_, letter: string) => letter.toUpperCase())];
    return text === undefined ? [] : [[member, readOption(flag, text, reading)]];
  });
  return Object.fromEntries(read);
}

function readOption(flag: string, text: string | boolean, reading: Reading): unknown {
  if (typeof text === 'boolean') return text;
  if (reading === 'whole') return wholeNumber(flag, text);
  if (reading === 'duration') return duration(flag, text);
  if (reading === 'number') {
    if (text.trim() === '' || !Number.isFinite(Number(text)))
      throw new UsageError(`${flag} must be a number, not ${text}`);
    return Number(text);
  }
  if (flag === '--mode' && /^\d+$/.test(text)) return Number(text);
  return flag === '--method' ? text.toUpperCase() : text;
}

type Show = (text: string, data: unknown) => void;

async function list(client: AdminClient, show: Show): Promise<void> {
  const all = await client.send<Record<'faults' | 'poisons', Record<string, unknown>[]>>('GET', 'faults');
  const rows = [...all.faults, ...all.poisons].map(({ id, matched, happened, ...members }) => {
    const text = Object.entries(members).map(([name, value]) => `${name}=${JSON.stringify(value)}`);
    return [String(id ?? 'poison'), plain(text.join(' ')), happened === undefined ? '' : `${happened} of ${matched}`];
  });
  show(rows.length === 0 ? 'No faults.' : table([['id', 'fault', 'applied'], ...rows]), all);
}

interface WebhookFaultViews {
  kinds: { kind: string; does: string; verdict: string }[];
  faults: { id: number; kind: string }[];
  outcomes: { kind: string; isRight: boolean }[];
}

async function listWebhookFaults(client: AdminClient, show: Show): Promise<void> {
  const all = await client.send<WebhookFaultViews>('GET', 'webhook-faults');
  const rows = all.kinds.map(({ kind, does, verdict }) => {
    const own = all.outcomes.filter((one) => one.kind === kind);
    const ids = all.faults.filter((one) => one.kind === kind).map(({ id }) => id);
    const correct = own.filter(({ isRight }) => isRight).length;
    return [kind, does, verdict, ids.join(', '), own.length === 0 ? '' : `${correct} of ${own.length}`];
  });
  show(table([['kind', 'effect', 'receiver should', 'active', 'handled correctly'], ...rows]), all);
}
