import type { Command } from 'commander';
import { counted, durationText } from '../../base/amounts.ts';
import { UsageError } from '../../base/errors.ts';
import { plain } from '../../base/foreign-text.ts';
import { table } from '../../base/table.ts';
import { type AdminClient, adminVerb, asAdmin } from './admin-client.ts';
import { wholeNumber } from './cause-verb.ts';
import { duration } from './fault-verbs.ts';
import { idOf } from './named-records.ts';

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

interface DeliveryView {
  id: number;
  webhook: number;
  status: string;
  eventType: string;
  attempts: number;
  occurredAtMs: number;
  lastAnswer?: number | string;
  nextMs?: number;
}

interface ThresholdView {
  id: number;
  type: string;
  name: string;
  thresholdable_type: string;
  thresholdable_id: number;
  key?: string;
  value: number;
  unit?: string;
}

/** Adds `status`, `clock`, `sent`, `resend`, `threshold`: the sandbox's time, and what went out of it. */
export function addLookVerbs(sandbox: Command): void {
  const status = adminVerb(sandbox.command('status')).description('what a running sandbox holds');
  status.action(() =>
    asAdmin(status, async (client, show) => {
      const now = await client.get<SandboxStatus>('status');
      show(statusText(now), now);
    }),
  );

  const clock = adminVerb(sandbox.command('clock'))
    .description("the sandbox's time: shown, moved on, or made faster")
    .argument('[what]', 'advance or speed')
    .argument('[amount]', 'advance: for example 11m or 3d; speed: times as fast')
    .addHelpText(
      'after',
      '\nExamples:\n  tagferry sandbox clock\n  tagferry sandbox clock advance 11m      access tokens expire\n  tagferry sandbox clock advance 3d       retries of three days\n  tagferry sandbox clock speed 60',
    );
  clock.action((what: string | undefined, amount: string | undefined) =>
    asAdmin(clock, async (client, show) => {
      const now =
        what === undefined
          ? await client.get<SandboxStatus>('status')
          : await client.send<SandboxStatus>('POST', 'clock', clockBody(what, amount));
      show(`${now.time}, ${now.speed === 1 ? 'as fast as yours' : `${now.speed} times as fast as yours`}`, {
        time: now.time,
        speed: now.speed,
      });
    }),
  );

  const sent = adminVerb(sandbox.command('sent'))
    .description('deliveries to webhooks: the last ones, with what was answered')
    .option('--webhook <id>', 'only of this one')
    .option('--status <status>', 'pending, delivered, failed or cancelled')
    .option('--limit <n>', 'so many', '20');
  sent.action((flags: { webhook?: string; status?: string; limit: string }) =>
    asAdmin(sent, (client, show) => listSent(client, show, flags)),
  );

  const resend = adminVerb(sandbox.command('resend'))
    .description('send deliveries again by the same schedule; pending ones are left alone')
    .argument('<ids...>', 'as `sent` shows them');
  resend.action((ids: string[]) =>
    asAdmin(resend, async (client, show) => {
      const body = { ids: ids.map((id) => wholeNumber('resend', id)) };
      const { started } = await client.send<{ started: number }>('POST', 'deliveries/resend', body);
      show(`${started} of ${ids.length} begin again.`, { started });
    }),
  );

  addThresholdVerb(sandbox);
}

function addThresholdVerb(sandbox: Command): void {
  const threshold = adminVerb(sandbox.command('threshold'))
    .description('thresholds of instrumentations, systems and recipes: listed, set, taken away')
    .argument('[what]', 'set or rm; without: the list')
    .argument('[object]', 'instrumentation by id or tag, system/36 or recipe/37; with rm the id of the threshold')
    .argument('[type]', 'high, low or deviation')
    .argument('[value]', 'a number')
    .option('--key <key>', 'only values of this key')
    .option('--unit <code>', 'the unit that the value is in')
    .option('--tolerance <n>', 'with deviation: how far is too far')
    .option('--assets <ids>', 'of a system or recipe: the assets whose values it looks at, by comma')
    .option('--name <text>', 'as events tell it')
    .addHelpText(
      'after',
      '\nExamples:\n  tagferry sandbox threshold\n  tagferry sandbox threshold set FT-101 high 20 --key flow --unit cubic_meter_per_hour\n  tagferry sandbox threshold set system/36 high 20 --assets 881,882\n  tagferry sandbox threshold rm 100008',
    );
  threshold.action(
    (
      what: string | undefined,
      object: string | undefined,
      type: string | undefined,
      value: string | undefined,
      flags: { key?: string; unit?: string; tolerance?: string; name?: string; assets?: string },
    ) =>
      asAdmin(threshold, async (client, show) => {
        if (what === undefined) {
          const { thresholds } = await client.get<{ thresholds: ThresholdView[] }>('thresholds');
          return show(thresholdsText(thresholds), thresholds);
        }
        if (object === undefined || (what !== 'set' && what !== 'rm')) {
          throw new UsageError(
            `threshold ${what} is not enough`,
            'Write `threshold set FT-101 high 20` or `threshold rm 100008`.',
          );
        }
        if (what === 'rm') {
          const id = wholeNumber('rm', object);
          await client.send('DELETE', `thresholds/${id}`);
          return show(`Threshold ${id} is gone.`, { id });
        }
        const number = Number(value);
        if (value === undefined || !Number.isFinite(number)) {
          throw new UsageError(
            'a threshold needs a type and a number',
            'Write for example `threshold set FT-101 high 20`.',
          );
        }
        const body = {
          ...(await thresholdObject(client, object)),
          ...(flags.assets === undefined
            ? {}
            : { assets: flags.assets.split(',').map((id) => wholeNumber('--assets', id)) }),
          type,
          value: number,
          ...(flags.key === undefined ? {} : { key: flags.key }),
          ...(flags.unit === undefined ? {} : { unit: flags.unit }),
          ...(flags.name === undefined ? {} : { name: flags.name }),
          ...(flags.tolerance === undefined ? {} : { tolerance: Number(flags.tolerance) }),
        };
        const { id } = await client.send<{ id: number }>('POST', 'thresholds', body);
        show(`Threshold ${id} is set.`, { id, ...body });
      }),
  );
}

/** `FT-101`, `4711`, `system/36` or `recipe/37`. */
async function thresholdObject(client: AdminClient, object: string) {
  const [, kind, name] = /^(system|recipe)\/(.+)$/i.exec(object) ?? [];
  if (kind === undefined) return { instrumentation: await idOf(client, 'instrumentations', object) };
  const isSystem = kind.toLowerCase() === 'system';
  return {
    thresholdable_type: isSystem ? 'System' : 'Recipe',
    thresholdable_id: await idOf(client, isSystem ? 'systems' : 'recipes', name!),
  };
}

function clockBody(
  what: string,
  amount: string | undefined,
): { advanceMs: number } | { speed: number } | { to: string } {
  if (amount !== undefined && what === 'to') return { to: amount };
  if (amount !== undefined && what === 'advance') return { advanceMs: duration('advance', amount) };
  if (amount !== undefined && what === 'speed') {
    const speed = Number(amount);
    if (!Number.isFinite(speed) || speed <= 0) throw new UsageError(`speed ${amount} is no number over 0`);
    return { speed };
  }
  throw new UsageError(
    `clock ${what} is not enough`,
    'Write `clock advance 11m`, `clock to 2027-05-02T00:00:00Z` or `clock speed 60`.',
  );
}

async function listSent(
  client: AdminClient,
  show: (text: string, data: unknown) => void,
  flags: { webhook?: string; status?: string; limit: string },
): Promise<void> {
  const query = flags.webhook === undefined ? '' : `?webhook=${wholeNumber('--webhook', flags.webhook)}`;
  const limit = wholeNumber('--limit', flags.limit);
  const { deliveries } = await client.get<{ deliveries: DeliveryView[] }>(`deliveries${query}`);
  const { time } = await client.get<SandboxStatus>('status');
  const chosen = deliveries.filter(({ status }) => flags.status === undefined || status === flags.status);
  const last = limit === 0 ? [] : chosen.slice(-limit).reverse();
  const rows = last.map((one) => [
    String(one.id),
    String(one.webhook),
    one.eventType,
    one.status,
    String(one.attempts),
    plain(String(one.lastAnswer ?? '-')),
    one.nextMs === undefined ? '-' : `in ${durationText(Math.max(0, (one.nextMs - Date.parse(time)) / 1000))}`,
  ]);
  const head = ['id', 'webhook', 'event type', 'status', 'attempts', 'answer', 'next'];
  show(rows.length === 0 ? 'Nothing was sent.' : table([head, ...rows]), last);
}

function statusText(now: SandboxStatus): string {
  const { delivered = 0, pending = 0, failed = 0 } = now.deliveries;
  return table([
    ['address', now.url],
    ['time', `${now.time}, ${now.speed} times as fast as yours`],
    ['platform', now.outage === null ? 'there' : `away (${plain(JSON.stringify(now.outage))})`],
    ['values', `${now.values.stored} in ${counted(now.values.posts, 'post')}`],
    ['tokens alive', String(now.tokens.alive)],
    ['webhooks', `${now.webhooks}; ${counted(delivered, 'delivery')} done, ${pending} pending, ${failed} failed`],
    ['requests', String(now.requests)],
  ]);
}

function thresholdsText(thresholds: readonly ThresholdView[]): string {
  if (thresholds.length === 0) return 'There are no thresholds.';
  const rows = thresholds.map((one) => [
    String(one.id),
    `${one.thresholdable_type} ${one.thresholdable_id}`,
    one.key ?? 'every key',
    `${one.type} ${one.value}${one.unit === undefined ? '' : ` ${one.unit}`}`,
    plain(one.name),
  ]);
  return table([['id', 'on', 'key', 'limit', 'name'], ...rows]);
}
