import { DELIVERY_ATTEMPTS } from '../../contract/webhooks.ts';
import type { SandboxClock } from '../sandbox-clock.ts';
import { signatureHeaders, type WebhookPost } from './sender.ts';
import type { Delivery, WebhookRecord, WebhookRegistry } from './webhook-registry.ts';

export interface DeliveryReport {
  delivery: Delivery;
  webhook: WebhookRecord;
  answer: number | string;
  /** Time until the next attempt; undefined if there is none. */
  nextInMs: number | undefined;
}

export interface DeliveryEngineOptions {
  clock: SandboxClock;
  registry: WebhookRegistry;
  send(post: WebhookPost, delivery: Delivery, webhook: WebhookRecord): Promise<number | string>;
  /** Counts a call and its bytes towards the quota. Returns false if the quota is exhausted. */
  spend(application: number, bytes: number): boolean;
  report(report: DeliveryReport): void;
  /**
   * Called when a webhook has been disabled after more than two weeks of failures, to notify the contact (platform
   * 3.2).
   */
  disabled(webhook: WebhookRecord): void;
}

/** Maximum number of concurrent attempts per webhook, so that an unresponsive receiver occupies only a few sockets. */
const MAX_AT_ONCE = 8;

interface Lane {
  underWay: number;
  /** Due deliveries in order. Stored in a set, because removing the first of 100,000 deliveries must be fast. */
  ready: Set<Delivery>;
  /** With `force_sorted_delivery`: the delivery that must be settled before the next delivery starts. */
  head: Delivery | undefined;
  /** Whether an event loop turn is scheduled, which handles all deliveries that become due at the same time. */
  isPumpDue: boolean;
}

/**
 * Delivers events (platform 3.3 and 6.1). A delivery is *pending* until a 2XX makes it *delivered* or 16 attempts make
 * it *failed*. It is *cancelled* if its webhook is disabled or deleted or if the quota is exhausted. A resend restarts
 * the retry schedule. All delays use the sandbox clock.
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

  /**
   * Restarts the retry schedule of deliveries that are not pending (platform 10.4). Returns the number of restarted
   * deliveries.
   */
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

  /** Whether no delivery is being sent or due. */
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
    // Deliveries are asynchronous (platform 6.1) and never sent within the request that caused the event.
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
    registry.begin(delivery);
    const headers = {
      'content-type': 'application/json',
      'user-agent': 'tagferry-sandbox',
      ...signatureHeaders(body, webhook.secret),
    };
    const answer = await this.#options.send({ url: webhook.url, body, headers }, delivery, webhook);
    if (this.#stopped) return;
    const lane = this.#lane(delivery.webhook);
    if (typeof answer === 'number' && answer >= 200 && answer < 300) {
      registry.succeed(delivery, webhook, answer);
      lane.head = undefined;
      report({ delivery, webhook, answer, nextInMs: undefined });
      return;
    }
    const nextInMs = retryDelayMs(delivery.attempts, () => clock.random());
    const isDisabled = registry.fail(delivery, webhook, answer, nextInMs);
    report({ delivery, webhook, answer, nextInMs });
    if (nextInMs === undefined) lane.head = undefined;
    else clock.after(nextInMs, () => this.#ready(delivery));
    if (isDisabled) this.#options.disabled(webhook);
  }
}

const DAYS_3_MS = 3 * 24 * 3600 * 1000;

/** Sum of 15 doubling delays, as a multiple of the first delay. */
const SUM_OF_DOUBLINGS = 2 ** (DELIVERY_ATTEMPTS - 1) - 1;

/** First delay. The delays (about 8 s, 16 s, … 36 h) have a mean total of three days. */
export const FIRST_DELAY_MS = DAYS_3_MS / SUM_OF_DOUBLINGS;

/**
 * Returns the delay after `attempts` (1 to 15) failed attempts, in milliseconds, or undefined after 16 attempts.
 * Platform 6.1: "up to 16 attempts, exponentially increasing random delay, about 3 days in total". With a random
 * variation of 25 %, each delay is longer than the previous delay: 1.25 × d < 0.75 × 2d.
 */
export function retryDelayMs(attempts: number, random: () => number): number | undefined {
  if (attempts >= DELIVERY_ATTEMPTS) return undefined;
  return FIRST_DELAY_MS * 2 ** (attempts - 1) * (0.75 + 0.5 * random());
}
