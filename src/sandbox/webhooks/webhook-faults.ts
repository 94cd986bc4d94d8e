import type { Clock } from '../../base/clock.ts';
import { type CountedFault, FaultList } from '../faults.ts';
import type { SendWebhook, WebhookPost } from './sender.ts';
import { isRight, TAMPERINGS, type TamperingName, tampered, type Verdict } from './tampering.ts';
import type { Delivery, WebhookRecord } from './webhook-registry.ts';

/** A fault and the deliveries that it affects. An omitted member matches all deliveries. */
export interface WebhookFault extends CountedFault {
  kind: TamperingName;
  webhook?: number;
  event_type?: string;
  /** Delay for `delayed`, in real milliseconds. Default: 5 s. */
  delayMs?: number;
}

export type NewWebhookFault = Omit<WebhookFault, 'id' | 'matched' | 'happened'>;

/** Result of a tampered delivery attempt. */
export interface WebhookFaultOutcome {
  delivery: number;
  webhook: number;
  kind: TamperingName;
  verdict: Verdict;
  answer: number | string;
  isRight: boolean;
}

const DELAY_MS = 5_000;
const MAX_OUTCOMES = 1_000;

/**
 * Faults between the platform and a receiver. A fault affects one attempt, whose response is judged according to
 * `tampering.ts`. The delivery continues as usual: if a forged attempt is rejected, a valid attempt follows as
 * scheduled.
 */
export class WebhookFaults extends FaultList<WebhookFault> {
  readonly #send: SendWebhook;
  readonly #clock: Clock;
  readonly #report: (sentence: string) => void;
  readonly #signal: AbortSignal;
  readonly #outcomes: WebhookFaultOutcome[] = [];
  /** Held deliveries by webhook, which are released when a later delivery has been sent. */
  readonly #held = new Map<number, (() => void)[]>();

  constructor(send: SendWebhook, clock: Clock, report: (sentence: string) => void, signal: AbortSignal) {
    super();
    this.#send = send;
    this.#clock = clock;
    this.#report = report;
    this.#signal = signal;
  }

  /** Returns the latest outcomes, oldest first. */
  outcomes(): readonly WebhookFaultOutcome[] {
    return this.#outcomes;
  }

  /** Makes one attempt, modified by the first matching fault. */
  async send(post: WebhookPost, delivery: Delivery, webhook: WebhookRecord): Promise<number | string> {
    const fault = this.#faultFor(delivery);
    if (fault === undefined) {
      const answer = await this.#send(post);
      this.#letGo(webhook.id);
      return answer;
    }
    const answer = await this.#sendWith(fault, post, webhook);
    const { kind } = fault;
    const { verdict, does } = TAMPERINGS[kind];
    const outcome = { delivery: delivery.id, webhook: webhook.id, kind, verdict, answer };
    this.#outcomes.push({ ...outcome, isRight: isRight(verdict, answer) });
    if (this.#outcomes.length > MAX_OUTCOMES) this.#outcomes.shift();
    const judged = isRight(verdict, answer) ? 'correctly' : `incorrectly: it should ${verdict}`;
    this.#report(`webhook ${webhook.id} responded with ${answer} to a tampered delivery (${does}), ${judged}`);
    return answer;
  }

  async #sendWith(fault: WebhookFault, post: WebhookPost, webhook: WebhookRecord): Promise<number | string> {
    if (fault.kind === 'delayed') {
      await this.#clock.sleep(fault.delayMs ?? DELAY_MS, this.#signal).catch(() => {});
    } else if (fault.kind === 'reordered') await this.#overtaken(webhook.id, fault.delayMs ?? DELAY_MS);
    else if (fault.kind === 'duplicate') {
      const first = await this.#send(post);
      if (!isRight('accept', first)) return first;
    }
    const answer = await this.#send(tampered(fault.kind, post));
    this.#letGo(webhook.id);
    return answer;
  }

  /** Waits until another delivery of the webhook has been sent or the timeout has expired. */
  #overtaken(webhook: number, patienceMs: number): Promise<void> {
    return new Promise((resolve) => {
      const cancel = this.#clock.after(patienceMs, resolve);
      const go = () => {
        cancel();
        resolve();
      };
      this.#held.set(webhook, [...(this.#held.get(webhook) ?? []), go]);
    });
  }

  #letGo(webhook: number): void {
    const held = this.#held.get(webhook);
    if (held === undefined) return;
    this.#held.delete(webhook);
    for (const go of held) go();
  }

  #faultFor(delivery: Delivery): WebhookFault | undefined {
    for (const fault of this.list()) {
      if (fault.webhook !== undefined && fault.webhook !== delivery.webhook) continue;
      if (fault.event_type !== undefined && fault.event_type !== delivery.eventType) continue;
      if (this.happens(fault)) return fault;
    }
    return undefined;
  }
}
