import type { Clock } from '../../base/clock.ts';
import { messageOf } from '../../base/errors.ts';
import { Agent } from '../../base/node-http.ts';
import type { DemoTag } from './plant.ts';
import { callSocket } from './socket-call.ts';

/** Between two requests. Each carries one value of each tag. */
export const PUSH_EVERY_MS = 200;
/** Requests that wait for their answer at once: a commit may take its time, a hanging agent must not gather them for ever. */
const MAX_UNDER_WAY = 25;

interface Push {
  timestampMs: number;
  /** One for each tag. */
  values: number[];
  acknowledged: boolean;
}

/**
 * The plant's program: pushes a value of every tag several times a second by `POST /v1/values`, and remembers what it
 * sent and what was acknowledged, which is what the platform must have in the end.
 */
export class Pusher {
  readonly tags: readonly DemoTag[];
  readonly #socketPath: string;
  readonly #read: (tag: number, nowMs: number) => number;
  readonly #clock: Clock;
  readonly #agent = new Agent({ keepAlive: true, maxSockets: MAX_UNDER_WAY });
  readonly #pushes: Push[] = [];
  readonly #underWay = new Set<Promise<void>>();
  #acknowledged = 0;
  #timer: NodeJS.Timeout | undefined;
  #trouble: string | undefined;

  constructor(
    tags: readonly DemoTag[],
    socketPath: string,
    read: (tag: number, nowMs: number) => number,
    clock: Clock,
  ) {
    this.tags = tags;
    this.#socketPath = socketPath;
    this.#read = read;
    this.#clock = clock;
  }

  start(): void {
    this.#timer = setInterval(() => this.#pushSoon(), PUSH_EVERY_MS);
    this.#pushSoon();
  }

  /** No more requests; resolves when those under way have their answers. May be called twice. */
  async stop(): Promise<void> {
    clearInterval(this.#timer);
    await Promise.all(this.#underWay);
    this.#agent.destroy();
  }

  get sent(): number {
    return this.#pushes.length * this.tags.length;
  }

  get acknowledged(): number {
    return this.#acknowledged;
  }

  /** Why the last request that was not acknowledged was not. */
  get trouble(): string | undefined {
    return this.#trouble;
  }

  /** How many requests there were so far: a place in time for `valuesOf`. */
  get pushes(): number {
    return this.#pushes.length;
  }

  /** What was sent of one tag, oldest first; between two places in time, or acknowledged alone, where told. */
  valuesOf(
    tag: number,
    which: { acknowledged?: boolean; from?: number; to?: number } = {},
  ): { timestampMs: number; value: number }[] {
    return this.#pushes
      .slice(which.from, which.to)
      .filter((push) => push.acknowledged || which.acknowledged !== true)
      .map((push) => ({ timestampMs: push.timestampMs, value: push.values[tag]! }));
  }

  #pushSoon(): void {
    if (this.#underWay.size >= MAX_UNDER_WAY) return;
    const done: Promise<void> = this.#push().finally(() => this.#underWay.delete(done));
    this.#underWay.add(done);
  }

  async #push(): Promise<void> {
    const nowMs = this.#clock.monotonicMs();
    // A timestamp is a value's identity: no two of a series may share one, even where the clock is set back.
    const timestampMs = Math.max(Math.round(this.#clock.wallMs()), (this.#pushes.at(-1)?.timestampMs ?? 0) + 1);
    const push: Push = { timestampMs, values: this.tags.map((_, tag) => this.#read(tag, nowMs)), acknowledged: false };
    this.#pushes.push(push);
    const values = this.tags.map(({ name, key }, tag) => ({
      tag: name,
      key,
      value: push.values[tag],
      timestamp: timestampMs,
    }));
    try {
      const body = JSON.stringify({ values });
      const { status, text } = await callSocket(this.#socketPath, '/v1/values', { body, agent: this.#agent });
      push.acknowledged = status === 204;
      if (push.acknowledged) this.#acknowledged += values.length;
      else this.#trouble = `${status} ${text.slice(0, 200)}`;
    } catch (error) {
      this.#trouble = messageOf(error);
    }
  }
}
