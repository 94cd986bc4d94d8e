import type { EventType } from '../../contract/events.ts';
import type { Plant } from '../plant/plant.ts';
import type { SandboxClock } from '../sandbox-clock.ts';
import type { DeliveryEngine } from '../webhooks/delivery-engine.ts';
import type { WebhookBook } from '../webhooks/webhook-book.ts';

export interface Happening {
  type: EventType;
  /** Which technical users may hear of it: read permission on the object (spec 6.1), or the one it concerns. */
  audience(user: number): boolean;
  /** The content for a webhook's list of names in `properties`, none for all; `undefined` where nothing of it is wanted. */
  content(names: readonly string[] | undefined): Record<string, unknown> | undefined;
  occurredAtMs?: number;
}

/** The two association events spell the time with one r (spec 6.2). */
export const ONE_R: ReadonlySet<EventType> = new Set<EventType>([
  'asset_instrumentation_association_created',
  'asset_instrumentation_association_destroyed',
]);

/** Turns what happens in the plant into deliveries: one for each webhook that wants and may have it. */
export class Announcer {
  readonly #plant: Plant;
  readonly #clock: SandboxClock;
  readonly #book: WebhookBook;
  readonly #engine: DeliveryEngine;
  readonly #told = new Map<EventType, number>();

  constructor(plant: Plant, clock: SandboxClock, book: WebhookBook, engine: DeliveryEngine) {
    this.#plant = plant;
    this.#clock = clock;
    this.#book = book;
    this.#engine = engine;
  }

  /** Whether any webhook that is enabled wants a type that looks like this. */
  hasListener(type: RegExp): boolean {
    for (const webhook of this.#book.webhooks.values()) {
      if (!webhook.disabled && webhook.event_types.some((one) => type.test(one))) return true;
    }
    return false;
  }

  /** How many deliveries there were of each type since the start: what `cause` answers with. */
  toldOf(type: EventType): number {
    return this.#told.get(type) ?? 0;
  }

  /** Says how many webhooks are told. */
  announce(happening: Happening): number {
    let told = 0;
    for (const webhook of this.#book.webhooks.values()) {
      if (webhook.disabled || !webhook.event_types.includes(happening.type)) continue;
      const user = this.#plant.get('client_applications', webhook.application)?.technical_user;
      if (user === undefined || !happening.audience(user)) continue;
      const names = webhook.properties?.[happening.type];
      const content = happening.content(names === undefined || names.length === 0 ? undefined : names);
      if (content === undefined) continue;
      const atMs = happening.occurredAtMs ?? this.#clock.wallMs();
      const at = new Date(atMs).toISOString();
      const payload = {
        event_type: happening.type,
        ...(ONE_R.has(happening.type) ? { occured_at: at } : { occurred_at: at }),
        content,
      };
      this.#engine.enqueue(this.#book.addDelivery(webhook.id, happening.type, atMs, JSON.stringify(payload)));
      told++;
    }
    this.#told.set(happening.type, this.toldOf(happening.type) + told);
    return told;
  }
}
