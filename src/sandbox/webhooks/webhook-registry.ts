import type { DeliveryStatus, Webhook } from '../../contract/webhooks.ts';
import { FAILED_EVENTS_KEPT_DAYS } from '../../contract/webhooks.ts';
import type { SandboxClock } from '../sandbox-clock.ts';

export interface WebhookRecord extends Webhook {
  /** ID of the client application. */
  application: number;
  secret: string;
  createdMs: number;
  /** Time of the first failed attempt since the latest successful delivery. */
  failingSinceMs: number | undefined;
}

export type WebhookChange = Partial<
  Pick<WebhookRecord, 'url' | 'event_types' | 'properties' | 'disabled' | 'force_sorted_delivery'>
>;

export interface Delivery {
  id: number;
  webhook: number;
  status: DeliveryStatus;
  eventType: string;
  occurredAtMs: number;
  createdMs: number;
  /** JSON text, identical in all attempts. */
  payload: string;
  /** Number of attempts in the current schedule. */
  attempts: number;
  lastSendMs: number | undefined;
  /** Time of the next attempt according to the sandbox clock; undefined if none is scheduled. */
  nextMs: number | undefined;
  /**
   * Time of the first failed attempt, including resends. Cleared when the event is delivered or the webhook is enabled
   * again.
   */
  failingSinceMs: number | undefined;
  /** Response to the latest attempt: a status, or the reason why there was no response. */
  lastAnswer: number | string | undefined;
}

const DAY_MS = 24 * 3600 * 1000;
const TWO_WEEKS_MS = 14 * DAY_MS;

/**
 * Webhooks and their deliveries. Settled deliveries are removed after six months (platform 3.3), or if there are more
 * than `maxSettled`. In this case, delivered and cancelled deliveries are removed first, oldest first, and failed
 * deliveries only if no others exist. Pending deliveries are never removed.
 */
export class WebhookRegistry {
  readonly #clock: SandboxClock;
  readonly #maxSettled: number;
  readonly webhooks = new Map<number, WebhookRecord>();
  readonly #deliveries = new Map<number, Delivery>();
  /** Delivered or cancelled deliveries (`#done`) and failed deliveries (`#failed`), in order of settlement. */
  readonly #done = new Set<Delivery>();
  readonly #failed = new Set<Delivery>();
  /** Time at which the next settled delivery becomes old enough to be removed. */
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

  /** Changes a webhook. `disabled: false` restarts the two-week failure periods of the webhook and its events. */
  change(webhook: WebhookRecord, change: WebhookChange): void {
    Object.assign(webhook, change);
    if (change.disabled !== false) return;
    webhook.failingSinceMs = undefined;
    for (const delivery of this.deliveries(webhook.id)) delivery.failingSinceMs = undefined;
  }

  resetSecret(webhook: WebhookRecord, secret: string): void {
    webhook.secret = secret;
  }

  /** Records the start of an attempt. */
  begin(delivery: Delivery): void {
    delivery.lastSendMs = this.#clock.wallMs();
    delivery.attempts++;
    delivery.nextMs = undefined;
  }

  /** Records a successful attempt. */
  succeed(delivery: Delivery, webhook: WebhookRecord, answer: number): void {
    delivery.lastAnswer = answer;
    delivery.failingSinceMs = undefined;
    webhook.failingSinceMs = undefined;
    this.settle(delivery, 'delivered');
  }

  /**
   * Records a failed attempt, which is the final one if `nextInMs` is undefined. Returns whether the webhook has been
   * disabled as a result. Platform 3.2 refers to failures of one event, platform 7 to failures of the webhook.
   */
  fail(delivery: Delivery, webhook: WebhookRecord, answer: number | string, nextInMs: number | undefined): boolean {
    const nowMs = this.#clock.wallMs();
    delivery.lastAnswer = answer;
    delivery.failingSinceMs ??= nowMs;
    webhook.failingSinceMs ??= nowMs;
    if (nextInMs === undefined) this.settle(delivery, 'failed');
    else delivery.nextMs = nowMs + nextInMs;
    const failingSinceMs = Math.min(delivery.failingSinceMs, webhook.failingSinceMs);
    if (nowMs - failingSinceMs <= TWO_WEEKS_MS || webhook.disabled) return false;
    webhook.disabled = true;
    return true;
  }

  /** Settles a delivery. */
  settle(delivery: Delivery, status: Exclude<DeliveryStatus, 'pending'>): void {
    delivery.status = status;
    // A delivery is not counted if its webhook has been deleted.
    if (this.#deliveries.get(delivery.id) !== delivery) return;
    this.#nextForgetMs = Math.min(this.#nextForgetMs, endOf(delivery));
    (status === 'failed' ? this.#failed : this.#done).add(delivery);
    while (this.#done.size + this.#failed.size > this.#maxSettled) {
      const oldest = this.#done.values().next().value ?? this.#failed.values().next().value;
      if (oldest === undefined) return;
      this.#forget(oldest);
    }
  }

  /** Reopens a settled delivery. */
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

  /** Returns the deliveries of all webhooks or of one webhook, oldest first. */
  deliveries(webhook?: number): Delivery[] {
    this.#forgetOld();
    const all = [...this.#deliveries.values()];
    return webhook === undefined ? all : all.filter((delivery) => delivery.webhook === webhook);
  }

  /** Removes deliveries six months after their latest attempt (platform 3.3 and 8). */
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

  #forget(delivery: Delivery): void {
    this.#deliveries.delete(delivery.id);
    this.#done.delete(delivery);
    this.#failed.delete(delivery);
  }
}

function endOf(delivery: Delivery): number {
  return (delivery.lastSendMs ?? delivery.createdMs) + FAILED_EVENTS_KEPT_DAYS * DAY_MS;
}
