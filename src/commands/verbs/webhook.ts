import type { Command } from 'commander';
import { counted, timeText } from '../../base/amounts.ts';
import { UsageError } from '../../base/errors.ts';
import { jsonText, plain } from '../../base/foreign-text.ts';
import { painter, table } from '../../base/table.ts';
import type { DeliveryListing, ResendReport } from '../../webhook/deliveries.ts';
import type { ListedWebhook } from '../../webhook/registration.ts';
import type { SelfTestLine } from '../../webhook/self-test.ts';
import { agentOf, askAgent } from '../connection/control-client.ts';
import { confirmChange, positiveInteger, timeOption } from '../terminal/input.ts';
import { print } from '../terminal/output.ts';

/** Adds `tagferry webhook`, which requires a running agent and its session. */
export function define(program: Command): void {
  const webhook = program.command('webhook').description("manage this gateway's webhook on the platform");
  const ask = <Result>(operation: string, params: Record<string, unknown> = {}) =>
    askAgent<Result>(agentOf(program), `webhook/${operation}`, params);

  json(
    webhook
      .command('ls')
      .description("list the client application's webhooks; * marks this gateway's current webhook, ! a previous one"),
  ).action(async (flags: Flags) => {
    const { webhooks } = await ask<{ webhooks: ListedWebhook[] }>('ls');
    print(flags.json ? jsonText(webhooks) : listText(webhooks));
  });

  json(
    webhook
      .command('register')
      .description('create or update the webhook with the configured address, event types and filters'),
  ).action(async (flags: Flags) => {
    const result = await ask<{ webhook: number; disabled: boolean }>('register');
    const state = result.disabled
      ? 'registered but disabled. To enable it, run `tagferry webhook enable`'
      : 'registered and enabled';
    print(flags.json ? jsonText(result) : `Webhook ${result.webhook} is ${state}.`);
  });

  for (const [name, what, done] of [
    ['enable', 'resume deliveries', 'enabled'],
    ['disable', 'pause deliveries until `enable`; the agent still reads events from the deliveries list', 'disabled'],
  ] as const) {
    json(webhook.command(name).description(what).argument('[id]', "webhook ID (default: this gateway's)")).action(
      async (id: string | undefined, flags: Flags) => {
        const result = await ask<object>(name, idOf(id));
        print(flags.json ? jsonText(result) : `The webhook is ${done}.`);
      },
    );
  }

  json(
    webhook.command('rotate-secret').description('request a new secret; the previous one stays valid for one hour'),
  ).action(async (flags: Flags) => {
    const result = await ask<object>('rotate-secret');
    print(flags.json ? jsonText(result) : 'Secret rotated. The agent now uses the new secret.');
  });

  json(
    webhook
      .command('delete')
      .description('delete the webhook on the platform until `register` or the next start of the agent')
      .argument('[id]', "webhook ID (default: this gateway's)")
      .option('--yes', 'skip the confirmation'),
  ).action(async (id: string | undefined, flags: Flags & { yes?: boolean }) => {
    const params = idOf(id);
    const which = id === undefined ? "this gateway's webhook" : `webhook ${id}`;
    if (!(await confirmChange(`Delete ${which} on the platform? Events are no longer delivered to it.`, flags.yes)))
      return;
    const result = await ask<object>('delete', params);
    print(flags.json ? jsonText(result) : 'Webhook deleted.');
  });

  json(
    webhook
      .command('prune')
      .description('delete webhooks that this gateway registered for previous addresses')
      .option('--yes', 'skip the confirmation'),
  ).action(async (flags: Flags & { yes?: boolean }) => {
    const { webhooks } = await ask<{ webhooks: ListedWebhook[] }>('ls');
    const left = webhooks.filter((one) => one.left_behind);
    if (left.length === 0) {
      print(flags.json ? jsonText({ deleted: [] }) : 'No webhooks for previous addresses.');
      return;
    }
    if (!flags.json) print(listText(left));
    const question = 'Delete these webhooks on the platform? A copy of this gateway may be using one of them.';
    if (!(await confirmChange(question, flags.yes))) return;
    const { deleted } = await ask<{ deleted: number[] }>('prune', { ids: left.map(({ id }) => id) });
    print(
      flags.json ? jsonText({ deleted }) : `Deleted: ${deleted.map((id) => `webhook ${id}`).join(', ') || 'none'}.`,
    );
  });

  addDeliveries(webhook, ask);

  json(
    webhook
      .command('test')
      .description('test the listener locally and at WEBHOOK_URL: signed requests must return 204, unsigned ones 401'),
  ).action(async (flags: Flags) => {
    const { checks } = await ask<{ checks: SelfTestLine[] }>('test');
    print(flags.json ? jsonText({ ok: checks.every((check) => check.ok), checks }) : testText(checks));
    if (checks.length === 0 || checks.some((check) => !check.ok)) process.exitCode = 1;
  });
}

interface Flags {
  json?: boolean;
}

function json(command: Command): Command {
  return command.option('--json', 'print the result as JSON');
}

function listText(webhooks: readonly ListedWebhook[]): string {
  if (webhooks.length === 0) return 'The client application has no webhooks.';
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
  if (checks.length === 0) return 'Nothing to test: WEBHOOK_LISTEN is off and WEBHOOK_URL is empty.';
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
    throw new UsageError(`${JSON.stringify(text)} is not a webhook ID`, 'See `tagferry webhook ls`.');
  return { id: Number(text) };
}

type Ask = <Result>(operation: string, params?: Record<string, unknown>) => Promise<Result>;

interface ListFlags {
  webhook?: string;
  status?: string;
  eventType?: string;
  since?: string;
  limit: string;
  json?: boolean;
}

/** Adds `webhook deliveries` and `webhook resend`. */
export function addDeliveries(webhook: Command, ask: Ask): void {
  webhook
    .command('deliveries')
    .description('list the deliveries that the platform stores, newest first')
    .option('--webhook <id>', "webhook ID (default: this gateway's)")
    .option('--status <status>', 'delivery status, such as failed, pending or delivered')
    .option('--event-type <type>', 'event type')
    .option('--since <time>', 'time of the earliest event: a duration before now (30m, 2d) or a date')
    .option('--limit <n>', 'maximum number of deliveries', '100')
    .option('--json', 'print the deliveries as JSON')
    .action(async (flags: ListFlags) => {
      const listing = await ask<DeliveryListing>('deliveries', {
        ...webhookParam(flags),
        status: flags.status,
        event_type: flags.eventType,
        since_ms: flags.since === undefined ? undefined : timeOption('--since', flags.since),
        limit: positiveInteger('--limit', flags.limit),
      });
      print(flags.json ? jsonText(listing) : deliveriesTable(listing));
    });

  webhook
    .command('resend')
    .description('request deliveries again')
    .argument('[ids...]', 'ids from `webhook deliveries`')
    .option('--webhook <id>', "webhook ID (default: this gateway's)")
    .option('--all-failed', 'request all failed deliveries again')
    .option('--json', 'print the result as JSON')
    .action(async (ids: string[], flags: { webhook?: string; allFailed?: boolean; json?: boolean }) => {
      if (ids.length > 0 === (flags.allFailed === true)) {
        throw new UsageError(
          'webhook resend requires delivery IDs or --all-failed',
          'Run `tagferry webhook deliveries`.',
        );
      }
      const params = flags.allFailed ? { all_failed: true } : { ids: ids.map((id) => positiveInteger('delivery', id)) };
      const report = await ask<ResendReport>('resend', { ...params, ...webhookParam(flags) });
      print(flags.json ? jsonText(report) : resendText(report));
      if (report.rejected.length > 0 || report.remaining > 0) process.exitCode = 1;
    });
}

function deliveriesTable({ deliveries, total }: DeliveryListing): string {
  if (deliveries.length === 0) return 'No deliveries.';
  const rows = table([
    ['id', 'status', 'occurred (UTC)', 'last attempt (UTC)', 'attempts', 'response', 'days left', 'event type'],
    ...deliveries.map((each) => [
      String(each.id),
      plain(each.status),
      timeText(each.occurred_at),
      timeText(each.last_send_at),
      String(each.attempts ?? '-'),
      plain(each.response ?? '-'),
      String(each.days_left ?? '-'),
      plain(each.event_type ?? '-'),
    ]),
  ]);
  return total > deliveries.length
    ? `${rows}\n\n${deliveries.length} of ${counted(total, 'delivery')} shown. To see more, increase --limit.`
    : rows;
}

function resendText({ accepted, rejected, remaining }: ResendReport): string {
  const lines = rejected.map(({ id, error }) => `delivery ${id} rejected: ${plain(error)}`);
  if (remaining > 0)
    lines.push(`${counted(remaining, 'failed delivery', 'was', 'were')} not requested: run the command again.`);
  return [`${counted(accepted.length, 'delivery')} requested again.`, ...lines].join('\n');
}

function webhookParam({ webhook }: { webhook?: string }): { webhook?: number } {
  return webhook === undefined ? {} : { webhook: positiveInteger('--webhook', webhook) };
}
