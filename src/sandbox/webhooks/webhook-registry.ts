import type { DeliveryStatus, Webhook } from '../../contract/webhooks.ts';
import { FAILED_EVENTS_KEPT_DAYS } from '../../contract/webhooks.ts';
import type { SandboxClock } from '../sandbox-clock.ts';

export interface WebhookRecord extends Webhook {
  /** Client application, by id. */
  application: number;
  secret: string;
  createdMs: number;
  /** Wall time of the first failed attempt since any event was delivered. */
  failingSinceMs: number | undefined;
}

export interface Delivery {
  id: number;
  webhook: number;
  status: DeliveryStatus;
  eventType: string;
  occurredAtMs: number;
  createdMs: number;
  /** JSON text, the same bytes at every attempt. */
  payload: string;
  /** Attempts of the schedule under way. */
  attempts: number;
  lastSendMs: number | undefined;
  /** When the next attempt is due, by the sandbox's wall clock; `undefined` where it waits for none. */
  nextMs: number | undefined;
  /** Wall time of the event's first failed attempt, resends included, until it is delivered or its webhook is enabled again. */
  failingSinceMs: number | undefined;
  /** What the last attempt was answered: a status, or why there was none. */
  lastAnswer: number | string | undefined;
}

const DAY_MS = 24 * 3600 * 1000;

/**
 * Webhooks and their deliveries. Settled ones fall away after six months (platform 3.3), and beyond `maxSettled` for the
 * sake of memory: what was delivered or cancelled before, in the order in which it was, and failed ones only where there
 * is nothing else. Pending ones never.
 */
export class WebhookRegistry {
  readonly #clock: SandboxClock;
  readonly #maxSettled: number;
  readonly webhooks = new Map<number, WebhookRecord>();
  readonly #deliveries = new Map<number, Delivery>();
  /** Those that are delivered or cancelled, and those that failed, in the order in which they came to be. */
  readonly #done = new Set<Delivery>();
  readonly #failed = new Set<Delivery>();
  /** No settled delivery is old enough before this time. */
  #nextForgetMs = Number.POSITIVE_INFINITY;
  #nextWebhook = 1;
  #nextDelivery = 1;

  constructor(clock: SandboxClock, maxSettled = 20_000) {
    this.#clock = clock;
    this.#maxSettled = maxSettled;
  }

  add(webhook: Omit<WebhookRecord, 'id' | 'createdMs' | 'failingSinceMs'>): WebhookRecord {
    const id = this.#nextWebhook++;
    const record = { ...webhook, id, createdMs: this.#clock.wallMs(), failingSinceMs: undefined };
    this.webhooks.set(id, record);
    return record;
  }

  remove(id: number): void {
    this.webhooks.delete(id);
    for (const delivery of this.#deliveries.values()) {
      if (delivery.webhook === id) this.#forget(delivery);
    }
  }

  addDelivery(webhook: number, eventType: string, occurredAtMs: number, payload: string): Delivery {
    const delivery: Delivery = {
      id: this.#nextDelivery++,
      webhook,
      status: 'pending',
      eventType,
      occurredAtMs,
      createdMs: this.#clock.wallMs(),
      payload,
      attempts: 0,
      nextMs: undefined,
      lastSendMs: undefined,
      failingSinceMs: undefined,
      lastAnswer: undefined,
    };
    this.#deliveries.set(delivery.id, delivery);
    return delivery;
  }

  /** Restarts the two weeks of failures of a webhook and of its events. */
  forgetFailures(webhook: WebhookRecord): void {
    webhook.failingSinceMs = undefined;
    for (const delivery of this.deliveries(webhook.id)) delivery.failingSinceMs = undefined;
  }

  /** A delivery has ended. */
  settle(delivery: Delivery, status: Exclude<DeliveryStatus, 'pending'>): void {
    delivery.status = status;
    // Its webhook may have been deleted meanwhile.
    if (this.#deliveries.get(delivery.id) !== delivery) return;
    this.#count(delivery);
    while (this.#done.size + this.#failed.size > this.#maxSettled) {
      const oldest = this.#done.values().next().value ?? this.#failed.values().next().value;
      if (oldest === undefined) return;
      this.#forget(oldest);
    }
  }

  /** A settled delivery begins again. */
  reopen(delivery: Delivery): void {
    delivery.status = 'pending';
    delivery.attempts = 0;
    delivery.nextMs = undefined;
    this.#done.delete(delivery);
    this.#failed.delete(delivery);
  }

  delivery(id: number): Delivery | undefined {
    this.#forgetOld();
    return this.#deliveries.get(id);
  }

  /** Deliveries, oldest first; of one webhook where it is named. */
  deliveries(webhook?: number): Delivery[] {
    this.#forgetOld();
    const all = [...this.#deliveries.values()];
    return webhook === undefined ? all : all.filter((delivery) => delivery.webhook === webhook);
  }

  snapshot() {
    return {
      webhooks: [...this.webhooks.values()],
      deliveries: [...this.#deliveries.values()],
      nextWebhook: this.#nextWebhook,
      nextDelivery: this.#nextDelivery,
    };
  }

  restore(snapshot: ReturnType<WebhookRegistry['snapshot']>): void {
    for (const webhook of snapshot.webhooks) this.webhooks.set(webhook.id, webhook);
    for (const delivery of snapshot.deliveries) {
      this.#deliveries.set(delivery.id, delivery);
      this.#count(delivery);
    }
    this.#nextWebhook = snapshot.nextWebhook;
    this.#nextDelivery = snapshot.nextDelivery;
  }

  /** Platform 3.3 and 8: six months, counted from the last try. */
  #forgetOld(): void {
    const nowMs = this.#clock.wallMs();
    if (nowMs < this.#nextForgetMs) return;
    this.#nextForgetMs = Number.POSITIVE_INFINITY;
    for (const delivery of [...this.#done, ...this.#failed]) {
      const endMs = endOf(delivery);
      if (endMs <= nowMs) this.#forget(delivery);
      else this.#nextForgetMs = Math.min(this.#nextForgetMs, endMs);
    }
  }

  #count(delivery: Delivery): void {
    if (delivery.status !== 'pending') this.#nextForgetMs = Math.min(this.#nextForgetMs, endOf(delivery));
    if (delivery.status === 'failed') this.#failed.add(delivery);
    else if (delivery.status !== 'pending') this.#done.add(delivery);
  }

  #forget(delivery: Delivery): void {
    this.#deliveries.delete(delivery.id);
    this.#done.delete(delivery);
    this.#failed.delete(delivery);
  }
}

function endOf(delivery: Delivery): number {
  return (delivery.lastSendMs ?? delivery.createdMs) + FAILED_EVENTS_KEPT_DAYS * DAY_MS;
}
