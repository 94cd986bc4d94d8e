import type { Webhook } from '../../contract/webhooks.ts';
import { messageOf, TagferryError } from '../../errors.ts';
import type { PlatformClient } from '../../platform/client.ts';
import { allEntries } from '../../platform/pages.ts';
import { ClientApplications } from '../../platform/resources/client-applications.ts';
import { Webhooks } from '../../platform/resources/webhooks.ts';
import { sameAddress } from '../../webhook/drift.ts';
import type { SelfTestLine } from '../../webhook/self-test.ts';
import { askDaemon } from '../control-client.ts';
import { plain } from '../table.ts';
import { type CheckLine, type Consultation, failure, ok, warning } from './finding.ts';

/** The webhook: registered, enabled, and, where the daemon can test it, reachable. `client`: a login of the doctor's own. */
export async function webhookLines(
  { daemon, settings, place }: Consultation,
  client: PlatformClient | undefined,
): Promise<CheckLine[]> {
  const url = daemon ? daemon.listener.webhook_url : settings.webhookUrl;
  if (!url) return [ok('webhook', 'WEBHOOK_URL is empty: no webhook is registered, events do not come')];
  const lines: CheckLine[] = [];
  try {
    const all = client
      ? await listWith(client, settings.clientApplication)
      : (await askDaemon<{ webhooks: Webhook[] }>(place, 'webhook/ls')).webhooks;
    lines.push(registrationLine(all, url));
  } catch (error) {
    const hint = error instanceof TagferryError ? error.hint : undefined;
    lines.push(failure('webhook.registered', messageOf(error), hint ?? 'See `tagferry webhook ls`.'));
  }
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
