import type { Command } from 'commander';
import { UsageError } from '../base/errors.ts';
import { jsonText, plain } from '../base/foreign-text.ts';
import { painter, table } from '../base/table.ts';
import type { ListedWebhook } from '../webhook/registration.ts';
import type { SelfTestLine } from '../webhook/self-test.ts';
import { confirm } from './asking.ts';
import { askDaemon, daemonPlace } from './control-client.ts';
import { addDeliveries } from './webhook-deliveries.ts';

/** Adds `tagferry webhook`: this gateway's webhook on the platform. All of it needs the running daemon and its session. */
export function define(program: Command): void {
  const webhook = program.command('webhook').description("this gateway's webhook on the platform");
  const tell = <Result>(operation: string, params: Record<string, unknown> = {}) =>
    askDaemon<Result>(
      daemonPlace(program.opts<{ config?: string }>().config, process.env),
      `webhook/${operation}`,
      params,
    );

  json(
    webhook
      .command('ls')
      .description("the webhooks of the client application; * is this gateway's own, ! one that it left behind"),
  ).action(async (flags: Flags) => {
    const { webhooks } = await tell<{ webhooks: ListedWebhook[] }>('ls');
    print(flags.json ? jsonText(webhooks) : listText(webhooks));
  });

  json(webhook.command('register').description('create it, or correct its address, event types and filters')).action(
    async (flags: Flags) => {
      const answer = await tell<{ webhook: number; disabled: boolean }>('register');
      const state = answer.disabled
        ? 'registered and disabled. To enable it: `tagferry webhook enable`'
        : 'registered and enabled';
      print(flags.json ? jsonText(answer) : `Webhook ${answer.webhook} is ${state}.`);
    },
  );

  for (const [name, what, done] of [
    ['enable', 'resume deliveries', 'enabled'],
    ['disable', 'stop deliveries until `enable`, across restarts; events are still read from the list', 'disabled'],
  ] as const) {
    json(webhook.command(name).description(what).argument('[id]', "another webhook than this gateway's")).action(
      async (id: string | undefined, flags: Flags) => {
        const answer = await tell<object>(name, idOf(id));
        print(flags.json ? jsonText(answer) : `The webhook is ${done}.`);
      },
    );
  }

  json(
    webhook.command('rotate-secret').description('a new secret from the platform; the old one stays valid for an hour'),
  ).action(async (flags: Flags) => {
    const answer = await tell<object>('rotate-secret');
    print(flags.json ? jsonText(answer) : 'The webhook has a new secret; the daemon has it, and it is not printed.');
  });

  json(
    webhook
      .command('delete')
      .description('delete it on the platform; not made again until `register` or the next start')
      .argument('[id]', "another webhook than this gateway's")
      .option('--yes', 'do not ask'),
  ).action(async (id: string | undefined, flags: Flags & { yes?: boolean }) => {
    const params = idOf(id);
    const which = id === undefined ? "this gateway's webhook" : `webhook ${id}`;
    if (!(await confirm(`Delete ${which} on the platform? Events stop coming.`, flags.yes))) {
      print('Nothing was deleted.');
      process.exitCode = 1;
      return;
    }
    const answer = await tell<object>('delete', params);
    print(flags.json ? jsonText(answer) : 'The webhook is deleted.');
  });

  json(
    webhook
      .command('prune')
      .description('delete webhooks that this gateway registered and whose address is no longer configured')
      .option('--yes', 'do not ask'),
  ).action(async (flags: Flags & { yes?: boolean }) => {
    const { webhooks } = await tell<{ webhooks: ListedWebhook[] }>('ls');
    const left = webhooks.filter((one) => one.left_behind);
    if (left.length === 0) {
      print(flags.json ? jsonText({ deleted: [] }) : 'No webhook is left behind.');
      return;
    }
    if (!flags.json) print(listText(left));
    const question = 'Delete them on the platform? A gateway that was copied from this one may use one of them.';
    if (!(await confirm(question, flags.yes))) {
      print('Nothing was deleted.');
      process.exitCode = 1;
      return;
    }
    const { deleted } = await tell<{ deleted: number[] }>('prune', { ids: left.map(({ id }) => id) });
    print(
      flags.json ? jsonText({ deleted }) : `Deleted: ${deleted.map((id) => `webhook ${id}`).join(', ') || 'none'}.`,
    );
  });

  addDeliveries(webhook, tell);

  json(
    webhook
      .command('test')
      .description(
        'is the listener reachable, here and at WEBHOOK_URL; does a signed body get 204, an unsigned one 401',
      ),
  ).action(async (flags: Flags) => {
    const { checks } = await tell<{ checks: SelfTestLine[] }>('test');
    print(flags.json ? jsonText({ ok: checks.every((check) => check.ok), checks }) : testText(checks));
    if (checks.length === 0 || checks.some((check) => !check.ok)) process.exitCode = 1;
  });
}

interface Flags {
  json?: boolean;
}

function json(command: Command): Command {
  return command.option('--json', 'print the outcome as JSON');
}

function listText(webhooks: readonly ListedWebhook[]): string {
  if (webhooks.length === 0) return 'The client application has no webhook.';
  return table([
    ['', 'id', 'state', 'address', 'event types', 'filters'],
    ...webhooks.map((one) => [
      one.own ? '*' : one.left_behind ? '!' : ' ',
      String(one.id),
      one.disabled ? 'disabled' : 'enabled',
      plain(one.url),
      plain((one.event_types ?? []).join(', ')),
      plain(filtersText(one.properties)),
    ]),
  ]);
}

function filtersText(properties: ListedWebhook['properties']): string {
  const parts = Object.entries(properties ?? {}).filter(([, names]) => names.length > 0);
  return parts.map(([type, names]) => `${type}=${names.join(',')}`).join('; ') || 'none';
}

function testText(checks: readonly SelfTestLine[]): string {
  if (checks.length === 0) return 'There is nothing to test: WEBHOOK_LISTEN is off and WEBHOOK_URL is empty.';
  const paint = painter(process.stdout, process.env);
  return checks
    .flatMap(({ ok, target, address, message, next }) => [
      `${ok ? paint('ok     ', 'green') : paint('failure', 'red')}  ${target} ${address}: ${plain(message)}`,
      ...(next === '' ? [] : [`         ${next}`]),
    ])
    .join('\n');
}

function idOf(text: string | undefined): { id?: number } {
  if (text === undefined) return {};
  if (!/^\d{1,15}$/.test(text))
    throw new UsageError(`${text} is not the number of a webhook`, 'See `tagferry webhook ls`.');
  return { id: Number(text) };
}

function print(text: string): void {
  process.stdout.write(`${text}\n`);
}
