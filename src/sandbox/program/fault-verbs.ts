import type { Command } from 'commander';
import { UsageError } from '../../base/errors.ts';
import { plain } from '../../base/foreign-text.ts';
import { readDuration } from '../../base/quantity.ts';
import { table } from '../../base/table.ts';
import { SIGN_IN_PATH } from '../../contract/tokens.ts';
import { type AdminClient, adminVerb, asAdmin } from './admin-client.ts';
import { wholeNumber } from './cause-verb.ts';
import { nearestHint } from './named-records.ts';

interface MatchFlags {
  method?: string;
  path?: string;
  asset?: string;
  nth?: string;
  every?: string;
  times?: string;
  retryAfter?: string;
}

/** Adds `tagferry sandbox fault`: what a client's tests need and a service should not have. */
export function addFaultVerbs(sandbox: Command): void {
  const fault = adminVerb(sandbox.command('fault'))
    .description('faults on demand; without more: those that are set')
    .addHelpText('after', EXAMPLES)
    .enablePositionalOptions();
  fault.action((_flags, command: Command) => {
    const [unknown] = command.args;
    if (unknown === undefined) return asAdmin(fault, list);
    const verbs = command.commands.map((verb) => verb.name());
    const hint = nearestHint(unknown, verbs, '`tagferry sandbox fault --help` lists the faults.');
    throw new UsageError(`fault ${unknown} is unknown`, hint);
  });
  fault.allowExcessArguments();

  matching(fault.command('latency'))
    .argument('<duration>', 'for example 500ms')
    .description('wait before each answer')
    .action((text: string, flags: MatchFlags, command: Command) =>
      set(command, flags, { latencyMs: duration('latency', text) }),
    );
  matching(fault.command('status'))
    .argument('<status>', '200 to 599, for example 503 or 429')
    .description('answer this, and do nothing')
    .action((text: string, flags: MatchFlags, command: Command) =>
      set(command, flags, { status: wholeNumber('status', text) }),
    );
  matching(fault.command('drop'))
    .argument('[when]', 'before the request is done, or after, when only the answer is lost', 'after')
    .description('break the connection')
    .action((when: string, flags: MatchFlags, command: Command) => {
      if (when !== 'before' && when !== 'after') throw new UsageError(`drop ${when} is neither before nor after`);
      return set(command, flags, { drop: when });
    });

  matching(fault.command('state'))
    .description("send browsers back from the sign-in with a state that is not the client's")
    .action((flags: MatchFlags, command: Command) =>
      set(command, { path: SIGN_IN_PATH, method: 'POST', ...flags }, { state: 'foreign' }),
    );

  const offline = adminVerb(fault.command('offline'))
    .description('the platform goes away')
    .option('--mode <mode>', 'refuse (connections), drop, or a status', 'refuse')
    .option('--for <duration>', 'comes back by itself; needed with refuse where there is no second address');
  offline.action((flags: { mode: string; for?: string }) =>
    asAdmin(offline, async (client, show) => {
      const mode = /^\d+$/.test(flags.mode) ? Number(flags.mode) : flags.mode;
      const forMs = flags.for === undefined ? undefined : duration('--for', flags.for);
      const body = { mode, ...(forMs === undefined ? {} : { forMs }) };
      await client.send('POST', 'offline', body);
      show(`The platform goes away (${mode})${flags.for === undefined ? '' : ` for ${flags.for}`}.`, body);
    }),
  );
  simple(fault, 'online', 'the platform is back', 'POST', 'online', 'The platform is back.');

  const expire = adminVerb(fault.command('expire'))
    .description('every access token expires now')
    .option('--refresh', 'and every refresh token');
  expire.action((flags: { refresh?: boolean }) =>
    asAdmin(expire, async (client, show) => {
      await client.send('POST', 'tokens/expire', { refresh: flags.refresh === true });
      show(`Every access token${flags.refresh ? ' and refresh token' : ''} is expired.`, { expired: true, ...flags });
    }),
  );
  simple(fault, 'revoke', 'every token is revoked', 'POST', 'tokens/revoke', 'Every token is revoked.');

  const poison = adminVerb(fault.command('poison'))
    .description('refuse every post that holds such a value')
    .option('--asset <id>', 'of this asset')
    .option('--key <key>', 'of this key')
    .option('--value <number>', 'this value')
    .option('--status <status>', 'with this status', '400');
  poison.action((flags: { asset?: string; key?: string; value?: string; status: string }) =>
    asAdmin(poison, async (client, show) => {
      const body = {
        status: wholeNumber('--status', flags.status),
        ...(flags.asset === undefined ? {} : { asset: wholeNumber('--asset', flags.asset) }),
        ...(flags.key === undefined ? {} : { key: flags.key }),
        ...(flags.value === undefined ? {} : { value: anyNumber('--value', flags.value) }),
      };
      await client.send('POST', 'poison', body);
      show('Such values are refused now.', body);
    }),
  );

  addWebhookFaultVerb(fault);

  const rate = adminVerb(fault.command('rate'))
    .description('requests a minute for a user before 429; 0 is none')
    .argument('<n>')
    .option('--retry-after', 'and say when to come again');
  rate.action((text: string, flags: { retryAfter?: boolean }) =>
    asAdmin(rate, async (client, show) => {
      const perUser = wholeNumber('rate', text);
      await client.send('PATCH', 'limits', { perUser, retryAfter: flags.retryAfter === true });
      show(`${perUser === 0 ? 'No limit' : `${perUser} requests a minute`} for each user now.`, { perUser });
    }),
  );

  const remove = adminVerb(fault.command('rm')).description('take one fault away').argument('<id>');
  remove.action((text: string) =>
    asAdmin(remove, async (client, show) => {
      const id = wholeNumber('rm', text);
      await client.send('DELETE', `faults/${id}`);
      show(`Fault ${id} is gone.`, { id });
    }),
  );
  simple(fault, 'clear', 'take all faults and poisons away', 'DELETE', 'faults', 'All faults are gone.');
}

function addWebhookFaultVerb(fault: Command): void {
  const webhook = adminVerb(fault.command('webhook'))
    .description('on the way to receivers of webhooks; without a kind: the list, and how receivers met them')
    .argument('[kind]', 'for example forged, duplicate or delayed')
    .option('--webhook <id>', 'only deliveries to this one')
    .option('--event <type>', 'only of this event type')
    .option('--every <n>', 'each n-th that matches')
    .option('--times <n>', 'falls away after so many')
    .option('--delay <duration>', 'with delayed and reordered: how late at most');
  webhook.action((kind: string | undefined, flags: WebhookFaultFlags) =>
    asAdmin(webhook, async (client, show) => {
      if (kind === undefined) {
        const all = await client.get<WebhookFaultViews>('webhook-faults');
        return show(webhookFaultsText(all), all);
      }
      const body: Record<string, unknown> = { kind };
      for (const name of ['webhook', 'every', 'times'] as const) {
        const text = flags[name];
        if (text !== undefined) body[name] = wholeNumber(`--${name}`, text);
      }
      if (flags.event !== undefined) body.event_type = flags.event;
      if (flags.delay !== undefined) body.delayMs = duration('--delay', flags.delay);
      const { id } = await client.send<{ id: number }>('POST', 'webhook-faults', body);
      show(`Fault ${id} is set on the way to receivers; \`fault clear\` takes all away.`, { id, ...body });
    }),
  );
}

interface WebhookFaultFlags {
  webhook?: string;
  event?: string;
  every?: string;
  times?: string;
  delay?: string;
}

interface WebhookFaultViews {
  kinds: { kind: string; does: string; verdict: string }[];
  faults: { id: number; kind: string; happened: number; matched: number }[];
  outcomes: { webhook: number; kind: string; answer: number | string; isRight: boolean }[];
}

function webhookFaultsText({ kinds, faults, outcomes }: WebhookFaultViews): string {
  const rows = kinds.map(({ kind, does, verdict }) => {
    const met = outcomes.filter((one) => one.kind === kind);
    const set = faults.filter((one) => one.kind === kind).map(({ id }) => id);
    const right = met.filter(({ isRight }) => isRight).length;
    return [kind, does, verdict, set.join(', '), met.length === 0 ? '' : `${right} of ${met.length}`];
  });
  return table([['kind', 'what', 'receiver should', 'set', 'met rightly'], ...rows]);
}

const EXAMPLES = `
Examples:
  tagferry sandbox fault                                     what is set
  tagferry sandbox fault status 503 --times 3                the next three requests
  tagferry sandbox fault status 429 --retry-after 7 --asset 881
  tagferry sandbox fault latency 500ms --path "/v1/*"
  tagferry sandbox fault drop after --every 5
  tagferry sandbox fault state --times 1
  tagferry sandbox fault offline --for 30s
  tagferry sandbox fault expire --refresh
  tagferry sandbox fault webhook forged --times 3
  tagferry sandbox fault clear`;

async function list(client: AdminClient, show: (text: string, data: unknown) => void): Promise<void> {
  const all = await client.get<{ faults: Record<string, unknown>[]; poisons: Record<string, unknown>[] }>('faults');
  const text = ({ id, matched, happened, ...rest }: Record<string, unknown>) => [
    String(id ?? 'poison'),
    plain(
      Object.entries(rest)
        .map(([name, value]) => `${name}=${JSON.stringify(value)}`)
        .join(' '),
    ),
    happened === undefined ? '' : `${happened} of ${matched}`,
  ];
  const rows = [...all.faults, ...all.poisons].map(text);
  show(rows.length === 0 ? 'No fault is set.' : table([['id', 'what', 'happened'], ...rows]), all);
}

function matching(command: Command): Command {
  return adminVerb(command)
    .option('--method <method>', 'only these requests')
    .option('--path <path>', 'only this path, or its beginning with * at the end')
    .option('--asset <id>', 'only requests about this asset')
    .option('--nth <n>', 'only the n-th that matches')
    .option('--every <n>', 'each n-th that matches')
    .option('--times <n>', 'falls away after so many')
    .option('--retry-after <s>', 'with a status: Retry-After');
}

function set(command: Command, flags: MatchFlags, effect: object): Promise<void> {
  return asAdmin(command, async (client, show) => {
    const body: Record<string, unknown> = { ...effect };
    if (flags.method !== undefined) body.method = flags.method.toUpperCase();
    if (flags.path !== undefined) body.path = flags.path;
    for (const name of ['asset', 'nth', 'every', 'times'] as const) {
      const text = flags[name];
      if (text !== undefined) body[name] = wholeNumber(`--${name}`, text);
    }
    if (flags.retryAfter !== undefined) body.retryAfter = flags.retryAfter;
    const { id } = await client.send<{ id: number }>('POST', 'faults', body);
    show(`Fault ${id} is set; \`fault rm ${id}\` takes it away.`, { id, ...body });
  });
}

function simple(
  fault: Command,
  name: string,
  what: string,
  method: 'POST' | 'DELETE',
  path: string,
  done: string,
): void {
  const command = adminVerb(fault.command(name)).description(what);
  command.action(() =>
    asAdmin(command, async (client, show) => {
      await client.send(method, path);
      show(done, { done: name });
    }),
  );
}

function anyNumber(flag: string, text: string): number {
  const value = Number(text);
  if (text.trim() === '' || !Number.isFinite(value)) throw new UsageError(`${flag} ${text} is no number`);
  return value;
}

/** Milliseconds. */
export function duration(flag: string, text: string): number {
  const reading = readDuration(text);
  if ('value' in reading) return reading.value;
  throw new UsageError(
    `${flag} ${text} ${reading.reason}`,
    reading.instead === undefined ? undefined : `${reading.instead}.`,
  );
}
