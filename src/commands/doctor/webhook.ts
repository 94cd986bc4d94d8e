import { messageOf, TagferryError } from '../../base/errors.ts';
import { plain } from '../../base/foreign-text.ts';
import type { Webhook } from '../../contract/webhooks.ts';
import type { PlatformClient } from '../../platform/client.ts';
import { allEntries } from '../../platform/pages.ts';
import { ClientApplications } from '../../platform/resources/client-applications.ts';
import { Webhooks } from '../../platform/resources/webhooks.ts';
import { sameAddress } from '../../webhook/drift.ts';
import type { ListedWebhook } from '../../webhook/registration.ts';
import type { SelfTestLine } from '../../webhook/self-test.ts';
import { askDaemon } from '../control-client.ts';
import { type CheckLine, type Consultation, failure, ok, warning } from './finding.ts';

/** The webhook: registered, enabled, and, where the daemon can test it, reachable. `client`: a login of the doctor's own. */
export async function webhookLines(
  { daemon, settings, place, subject }: Consultation,
  client: PlatformClient | undefined,
): Promise<CheckLine[]> {
  const url = daemon ? daemon.listener.webhook_url : settings.webhookUrl;
  const lines: CheckLine[] = daemon ? await leftBehindLines(place) : [];
  if (!url) return [ok('webhook', 'WEBHOOK_URL is empty: no webhook is registered, events do not come'), ...lines];
  try {
    const all = client
      ? await listWith(client, settings.clientApplication)
      : (await askDaemon<{ webhooks: Webhook[] }>(place, 'webhook/ls')).webhooks;
    lines.push(registrationLine(all, url));
  } catch (error) {
    const hint = error instanceof TagferryError ? error.hint : undefined;
    lines.push(failure('webhook.registered', messageOf(error), hint ?? 'See `tagferry webhook ls`.'));
  }
  if (subject === 'files') return lines;
  if (!daemon) {
    lines.push(
      warning('webhook.reachable', 'not tested: no daemon listens', 'Start the daemon, then `tagferry webhook test`.'),
    );
    return lines;
  }
  const { checks } = await askDaemon<{ checks: SelfTestLine[] }>(place, 'webhook/test');
  for (const check of checks) {
    const text = `${check.target} ${check.address}: ${plain(check.message)}`;
    lines.push(check.ok ? ok('webhook.reachable', text) : failure('webhook.reachable', text, check.next));
  }
  return lines;
}

/** What the daemon knows of; where the platform cannot be asked, other lines say so. */
async function leftBehindLines(place: Consultation['place']): Promise<CheckLine[]> {
  const asked = askDaemon<{ webhooks: ListedWebhook[] }>(place, 'webhook/ls');
  const { webhooks } = await asked.catch(() => ({ webhooks: [] }));
  return webhooks
    .filter((webhook) => webhook.left_behind)
    .map(({ id, url }) =>
      warning(
        'webhook.left_behind',
        `webhook ${id} still delivers to ${plain(url)}, an address that is no longer configured`,
        'Run `tagferry webhook prune`, unless another gateway uses it.',
      ),
    );
}

function registrationLine(webhooks: readonly Webhook[], url: string): CheckLine {
  const own = webhooks.find((webhook) => sameAddress(webhook.url, url));
  const check = 'webhook.registered';
  if (!own) {
    return failure(
      check,
      `the platform has no webhook for ${url}`,
      'Run `tagferry webhook register`, or start the daemon.',
    );
  }
  if (own.disabled) {
    const next = 'Run `tagferry webhook enable`; the platform disables what fails for two weeks.';
    return failure(check, `webhook ${own.id} is disabled`, next);
  }
  return ok(check, `webhook ${own.id} is registered and enabled`);
}

async function listWith(client: PlatformClient, application: string | undefined): Promise<Webhook[]> {
  const signal = AbortSignal.timeout(20_000);
  const { id } = await new ClientApplications(client).find(application, signal);
  return allEntries(new Webhooks(client, id).list(signal));
}
