import type { Command } from 'commander';
import { counted, timeText } from '../base/amounts.ts';
import { UsageError } from '../base/errors.ts';
import { jsonText, plain } from '../base/foreign-text.ts';
import { table } from '../base/table.ts';
import type { DeliveryListing, ResendReport } from '../webhook/deliveries.ts';
import { sinceOption } from './logs.ts';

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
    .option('--webhook <id>', 'another webhook of the client application')
    .option('--status <status>', 'only with this status, such as failed, pending or delivered')
    .option('--event-type <type>', 'only of this event type')
    .option('--since <time>', 'only of events since a date, or a duration ago such as 30m or 2d')
    .option('--limit <n>', 'maximum number of deliveries', '100')
    .option('--json', 'print them as JSON')
    .action(async (flags: ListFlags) => {
      const listing = await ask<DeliveryListing>('deliveries', {
        ...webhookParam(flags),
        status: flags.status,
        event_type: flags.eventType,
        since_ms: flags.since === undefined ? undefined : sinceOption(flags.since),
        limit: numberOf('--limit', flags.limit),
      });
      print(flags.json ? jsonText(listing) : listText(listing));
    });

  webhook
    .command('resend')
    .description('ask the platform to send deliveries again')
    .argument('[ids...]', 'delivery numbers in `webhook deliveries`')
    .option('--webhook <id>', 'another webhook of the client application')
    .option('--all-failed', 'all deliveries with the status failed')
    .option('--json', 'print the outcome as JSON')
    .action(async (ids: string[], flags: { webhook?: string; allFailed?: boolean; json?: boolean }) => {
      if (ids.length > 0 === (flags.allFailed === true)) {
        throw new UsageError(
          'webhook resend requires delivery numbers or --all-failed',
          'Run `tagferry webhook deliveries`.',
        );
      }
      const params = flags.allFailed ? { all_failed: true } : { ids: ids.map((id) => numberOf('delivery', id)) };
      const report = await ask<ResendReport>('resend', { ...params, ...webhookParam(flags) });
      print(flags.json ? jsonText(report) : resendText(report));
      if (report.rejected.length > 0 || report.remaining > 0) process.exitCode = 1;
    });
}

function listText({ deliveries, total }: DeliveryListing): string {
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
    ? `${rows}\n\n${deliveries.length} of ${counted(total, 'delivery')}, use --limit.`
    : rows;
}

function resendText({ accepted, rejected, remaining }: ResendReport): string {
  const lines = rejected.map(({ id, error }) => `delivery ${id} rejected: ${plain(error)}`);
  if (remaining > 0)
    lines.push(`${counted(remaining, 'failed delivery', 'was', 'were')} not requested: run the command again.`);
  return [`${counted(accepted.length, 'delivery')} requested again.`, ...lines].join('\n');
}

function webhookParam({ webhook }: { webhook?: string }): { webhook?: number } {
  return webhook === undefined ? {} : { webhook: numberOf('--webhook', webhook) };
}

function numberOf(name: string, text: string): number {
  if (!/^\d{1,15}$/.test(text) || Number(text) < 1) throw new UsageError(`${name} must be a whole number above 0`);
  return Number(text);
}

function print(text: string): void {
  process.stdout.write(`${text}\n`);
}
