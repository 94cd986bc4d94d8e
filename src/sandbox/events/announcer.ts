import type { EventType } from '../../contract/events.ts';
import type { SandboxClock } from '../sandbox-clock.ts';
import type { SiteModel } from '../site/site-model.ts';
import type { DeliveryEngine } from '../webhooks/delivery-engine.ts';
import type { WebhookRegistry } from '../webhooks/webhook-registry.ts';

export interface Announcement {
  type: EventType;
  /**
   * Returns whether a technical user receives the event, either because the user can read the object (platform 6.1) or
   * because the event refers to the user.
   */
  audience(user: number): boolean;
  /**
   * Returns the content that matches the names in a webhook's `properties`, or undefined if no name matches. Without
   * names, returns the complete content.
   */
  content(names: readonly string[] | undefined): Record<string, unknown> | undefined;
}

/** Event types that spell the name of the time member with one r (platform 6.2). */
const ONE_R: ReadonlySet<EventType> = new Set<EventType>([
  'asset_instrumentation_association_created',
  'asset_instrumentation_association_destroyed',
]);

/** Creates a delivery for each webhook that subscribes to an event and is permitted to receive it. */
export class Announcer {
  readonly #site: SiteModel;
  readonly #clock: SandboxClock;
  readonly #registry: WebhookRegistry;
  readonly #engine: DeliveryEngine;
  readonly #deliveries = new Map<EventType, number>();

  constructor(site: SiteModel, clock: SandboxClock, registry: WebhookRegistry, engine: DeliveryEngine) {
    this.#site = site;
    this.#clock = clock;
    this.#registry = registry;
    this.#engine = engine;
  }

  /** Returns whether an enabled webhook subscribes to this type. */
  hasListener(type: EventType): boolean {
    return [...this.#registry.webhooks.values()].some(
      ({ disabled, event_types }) => !disabled && event_types.includes(type),
    );
  }

  /** Returns the number of deliveries of a type since startup. */
  deliveriesOf(type: EventType): number {
    return this.#deliveries.get(type) ?? 0;
  }

  announce({ type, audience, content: contentFor }: Announcement): void {
    const at = new Date(this.#clock.wallMs());
    for (const webhook of this.#registry.webhooks.values()) {
      if (webhook.disabled || !webhook.event_types.includes(type)) continue;
      const user = this.#site.get('client_applications', webhook.application)?.technical_user;
      if (user === undefined || !audience(user)) continue;
      const names = webhook.properties?.[type];
      const content = contentFor(names === undefined || names.length === 0 ? undefined : names);
      if (content === undefined) continue;
      const time = ONE_R.has(type) ? { occured_at: at.toISOString() } : { occurred_at: at.toISOString() };
      const payload = JSON.stringify({ event_type: type, ...time, content });
      this.#engine.enqueue(this.#registry.addDelivery(webhook.id, type, at.getTime(), payload));
      this.#deliveries.set(type, this.deliveriesOf(type) + 1);
    }
  }
}
