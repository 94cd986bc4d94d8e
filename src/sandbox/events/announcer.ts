import type { EventType } from '../../contract/events.ts';
import type { SandboxClock } from '../sandbox-clock.ts';
import type { SiteModel } from '../site/site-model.ts';
import type { DeliveryEngine } from '../webhooks/delivery-engine.ts';
import type { WebhookRegistry } from '../webhooks/webhook-registry.ts';
import { type EventTimes, eventTime } from './event-time.ts';

export interface Happening {
  type: EventType;
  /** Which technical users may hear of it: read permission on the object (platform 6.1), or the one it concerns. */
  audience(user: number): boolean;
  /** The content for a webhook's list of names in `properties`, none for all; `undefined` where nothing of it is wanted. */
  content(names: readonly string[] | undefined): Record<string, unknown> | undefined;
  occurredAtMs?: number;
}

/** The two association events spell the time with one r (platform 6.2). */
export const ONE_R: ReadonlySet<EventType> = new Set<EventType>([
  'asset_instrumentation_association_created',
  'asset_instrumentation_association_destroyed',
]);

/** Turns what happens in the site into deliveries: one for each webhook that wants and may have it. */
export class Announcer {
  readonly #site: SiteModel;
  readonly #clock: SandboxClock;
  readonly #registry: WebhookRegistry;
  readonly #engine: DeliveryEngine;
  readonly #times: EventTimes;
  readonly #report = new Map<EventType, number>();

  constructor(
    site: SiteModel,
    clock: SandboxClock,
    registry: WebhookRegistry,
    engine: DeliveryEngine,
    times: EventTimes = 'Z',
  ) {
    this.#site = site;
    this.#clock = clock;
    this.#registry = registry;
    this.#engine = engine;
    this.#times = times;
  }

  /** Whether any webhook that is enabled wants this type. */
  hasListener(type: EventType): boolean {
    for (const webhook of this.#registry.webhooks.values()) {
      if (!webhook.disabled && webhook.event_types.includes(type)) return true;
    }
    return false;
  }

  /** How many deliveries there were of each type since the start: what `cause` answers with. */
  deliveriesOf(type: EventType): number {
    return this.#report.get(type) ?? 0;
  }

  /** Says how many webhooks are sent. */
  announce(happening: Happening): number {
    let sent = 0;
    for (const webhook of this.#registry.webhooks.values()) {
      if (webhook.disabled || !webhook.event_types.includes(happening.type)) continue;
      const user = this.#site.get('client_applications', webhook.application)?.technical_user;
      if (user === undefined || !happening.audience(user)) continue;
      const names = webhook.properties?.[happening.type];
      const content = happening.content(names === undefined || names.length === 0 ? undefined : names);
      if (content === undefined) continue;
      const atMs = happening.occurredAtMs ?? this.#clock.wallMs();
      const at = eventTime(atMs, this.#times);
      const payload = {
        event_type: happening.type,
        ...(ONE_R.has(happening.type) ? { occured_at: at } : { occurred_at: at }),
        content,
      };
      this.#engine.enqueue(this.#registry.addDelivery(webhook.id, happening.type, atMs, JSON.stringify(payload)));
      sent++;
    }
    this.#report.set(happening.type, this.deliveriesOf(happening.type) + sent);
    return sent;
  }
}
