import type { SandboxClock } from '../sandbox-clock.ts';
import { retryDelayMs } from './retry-schedule.ts';
import { signatureHeaders, type WebhookPost } from './sender.ts';
import type { Delivery, WebhookRecord, WebhookRegistry } from './webhook-registry.ts';

export interface DeliveryReport {
  delivery: Delivery;
  webhook: WebhookRecord;
  answer: number | string;
  /** Until the next attempt; `undefined` when there is none. */
  nextInMs: number | undefined;
}

export interface DeliveryEngineOptions {
  clock: SandboxClock;
  registry: WebhookRegistry;
  send(post: WebhookPost, delivery: Delivery, webhook: WebhookRecord): Promise<number | string>;
  /** Counts a call and its bytes against the subscription's quota; `false`: it is spent and nothing may be sent. */
  spend(application: number, bytes: number): boolean;
  report(report: DeliveryReport): void;
  /** A webhook was disabled after more than two weeks of failures; its contact person must be notified (platform 3.2). */
  disabled(webhook: WebhookRecord): void;
}

const TWO_WEEKS_MS = 14 * 24 * 3600 * 1000;
/** Sends under way at once to one address: a receiver that hangs must not hold a thousand sockets. */
const MAX_AT_ONCE = 8;

interface Lane {
  underWay: number;
  /** In the order in which they became due; a set, for the first of a hundred thousand leaves it in no time. */
  ready: Set<Delivery>;
  /** With `force_sorted_delivery`: the one that must be settled before the next may go. */
  head: Delivery | undefined;
  /** A turn of the loop is planned for it: a thousand that become due at once need one. */
  isPumpDue: boolean;
}

/**
 * Delivers events (platform 3.3 and 6.1). A delivery is *pending* until a 2XX makes it *delivered*, or 16 attempts make it
 * *failed*; a webhook that was disabled or deleted, or a spent quota, makes it *cancelled*. A resend starts the same
 * schedule again. Waiting takes no timer of its own: all hang on the sandbox's clock.
 */
export class DeliveryEngine {
  readonly #options: DeliveryEngineOptions;
  readonly #lanes = new Map<number, Lane>();
  #stopped = false;

  constructor(options: DeliveryEngineOptions) {
    this.#options = options;
  }

  enqueue(delivery: Delivery): void {
    this.#ready(delivery);
  }

  /** Starts the schedule again; those that are pending are left alone (platform 10.4). Says how many were started. */
  resend(deliveries: readonly Delivery[]): number {
    let started = 0;
    for (const delivery of deliveries) {
      if (delivery.status === 'pending') continue;
      this.#options.registry.reopen(delivery);
      this.#ready(delivery);
      started++;
    }
    return started;
  }

  /** Goes on with what a state file brought back, each delivery where its schedule stood. */
  resume(): void {
    const nowMs = this.#options.clock.wallMs();
    for (const delivery of this.#options.registry.deliveries()) {
      if (delivery.status !== 'pending') continue;
      const leftMs = (delivery.nextMs ?? nowMs) - nowMs;
      if (leftMs > 0) this.#options.clock.after(leftMs, () => this.#ready(delivery));
      else this.#ready(delivery);
    }
  }

  /** Whether nothing is being sent and nothing due waits: everything else waits for its time. */
  get isIdle(): boolean {
    for (const lane of this.#lanes.values()) if (lane.underWay > 0 || lane.isPumpDue) return false;
    return true;
  }

  stop(): void {
    this.#stopped = true;
    this.#lanes.clear();
  }

  #ready(delivery: Delivery): void {
    const lane = this.#lane(delivery.webhook);
    lane.ready.add(delivery);
    if (lane.isPumpDue) return;
    lane.isPumpDue = true;
    // Asynchronous (platform 6.1): never inside the request that caused it.
    setImmediate(() => {
      lane.isPumpDue = false;
      this.#pump(delivery.webhook);
    });
  }

  #lane(webhook: number): Lane {
    const found = this.#lanes.get(webhook);
    if (found) return found;
    const lane: Lane = { underWay: 0, ready: new Set(), head: undefined, isPumpDue: false };
    this.#lanes.set(webhook, lane);
    return lane;
  }

  #pump(id: number): void {
    if (this.#stopped) return;
    const lane = this.#lane(id);
    for (;;) {
      const webhook = this.#options.registry.webhooks.get(id);
      const sorted = webhook?.force_sorted_delivery === true;
      if (lane.underWay >= (sorted ? 1 : MAX_AT_ONCE)) return;
      if (sorted && lane.head !== undefined && !lane.ready.has(lane.head)) return;
      const delivery = (sorted ? lane.head : undefined) ?? lane.ready.values().next().value;
      if (!delivery) return;
      lane.ready.delete(delivery);
      lane.head = sorted ? delivery : undefined;
      if (
        !webhook ||
        webhook.disabled ||
        !this.#options.spend(webhook.application, Buffer.byteLength(delivery.payload))
      ) {
        this.#options.registry.settle(delivery, 'cancelled');
        lane.head = undefined;
        continue;
      }
      lane.underWay++;
      void this.#attempt(delivery, webhook).finally(() => {
        lane.underWay--;
        this.#pump(id);
      });
    }
  }

  async #attempt(delivery: Delivery, webhook: WebhookRecord): Promise<void> {
    const { registry, clock, report } = this.#options;
    const body = Buffer.from(delivery.payload, 'utf8');
    delivery.lastSendMs = clock.wallMs();
    delivery.attempts++;
    delivery.nextMs = undefined;
    const headers = {
      'content-type': 'application/json',
      'user-agent': 'tagferry-sandbox',
      ...signatureHeaders(body, webhook.secret),
    };
    const answer = await this.#options.send({ url: webhook.url, body, headers }, delivery, webhook);
    if (this.#stopped) return;
    delivery.lastAnswer = answer;
    const lane = this.#lane(delivery.webhook);
    if (typeof answer === 'number' && answer >= 200 && answer < 300) {
      registry.settle(delivery, 'delivered');
      delivery.failingSinceMs = undefined;
      webhook.failingSinceMs = undefined;
      lane.head = undefined;
      report({ delivery, webhook, answer, nextInMs: undefined });
      return;
    }
    const nowMs = clock.wallMs();
    delivery.failingSinceMs ??= nowMs;
    webhook.failingSinceMs ??= nowMs;
    const nextInMs = retryDelayMs(delivery.attempts, () => clock.random());
    report({ delivery, webhook, answer, nextInMs });
    if (nextInMs === undefined) {
      registry.settle(delivery, 'failed');
      lane.head = undefined;
    } else {
      delivery.nextMs = nowMs + nextInMs;
      clock.after(nextInMs, () => this.#ready(delivery));
    }
    // Platform 3.2 counts for one event, which another event's success does not reset; platform 7 for the webhook, whose events follow
    // one another through an outage. The earlier start is the event's where only that event fails, and else the webhook's.
    const failingSinceMs = Math.min(delivery.failingSinceMs, webhook.failingSinceMs);
    if (nowMs - failingSinceMs > TWO_WEEKS_MS && !webhook.disabled) {
      webhook.disabled = true;
      this.#options.disabled(webhook);
    }
  }
}
