import { countText as count } from '../../base/amounts.ts';
import type { StatusReport } from '../../ops/status-report.ts';
import type { Sandbox } from '../../sandbox/sandbox.ts';
import type { AgentChild } from './agent.ts';
import type { Pusher } from './pusher.ts';
import { progressBar, type Stage } from './stage.ts';

const UPDATE_MS = 200;
/** Number of updates over which the rate is measured (3 s). */
const RATE_UPDATES = 15;

export interface Drain {
  total: number;
  /** Returns the number of values still to be delivered. */
  left(): number;
}

/** Updates the live line: counters, or a progress bar while the backlog drains. */
export class Watch {
  readonly #stage: Stage;
  readonly #agent: AgentChild;
  readonly #sandbox: Sandbox;
  readonly #pusher: Pusher;
  readonly #plainEveryMs: number;
  readonly #acknowledged: number[] = [];
  #timer: NodeJS.Timeout | undefined;
  #updating = false;
  #sincePlainMs = 0;
  #latest: StatusReport | undefined;
  /** Set while the outage backlog drains. */
  drain: Drain | undefined;
  /** Whether the demo has made the platform unavailable. */
  away = false;

  constructor(stage: Stage, parts: { agent: AgentChild; sandbox: Sandbox; pusher: Pusher; plainEveryMs: number }) {
    this.#stage = stage;
    this.#agent = parts.agent;
    this.#sandbox = parts.sandbox;
    this.#pusher = parts.pusher;
    this.#plainEveryMs = parts.plainEveryMs;
  }

  start(): void {
    this.#timer = setInterval(() => void this.#update(), UPDATE_MS);
  }

  stop(): void {
    clearInterval(this.#timer);
    this.#timer = undefined;
  }

  /** The agent's latest status. */
  get latest(): StatusReport | undefined {
    return this.#latest;
  }

  /** Acknowledged values per second. */
  get rate(): number {
    const [first = 0] = this.#acknowledged;
    const last = this.#acknowledged.at(-1) ?? 0;
    const seconds = ((this.#acknowledged.length - 1) * UPDATE_MS) / 1000;
    return seconds > 0 ? Math.round((last - first) / seconds) : 0;
  }

  async #update(): Promise<void> {
    if (this.#updating) return;
    this.#updating = true;
    this.#acknowledged.push(this.#pusher.acknowledged);
    if (this.#acknowledged.length > RATE_UPDATES + 1) this.#acknowledged.shift();
    this.#latest = (await this.#agent.status()) ?? this.#latest;
    this.#updating = false;
    if (this.#timer === undefined) return;
    this.#sincePlainMs += UPDATE_MS;
    // In a pipe, lines are printed only during the outage and while the backlog drains.
    const moves = this.away || this.drain !== undefined;
    const everyMs = this.drain === undefined ? this.#plainEveryMs : this.#plainEveryMs / 2;
    const isPlainDue = moves && this.#sincePlainMs >= everyMs;
    if (isPlainDue || !moves) this.#sincePlainMs = 0;
    const text = this.#text();
    this.#stage.live(text, isPlainDue ? text : undefined);
  }

  #text(): string {
    const buffer = count(this.#latest?.buffer.values ?? 0);
    if (this.drain) {
      const { total } = this.drain;
      const done = total - this.drain.left();
      return `backlog ${progressBar(done / Math.max(1, total), 24)}  ${count(done)} of ${count(total)}`;
    }
    const state = this.#latest?.state ?? 'starting';
    const platform = count(this.#sandbox.values.counts().stored);
    const ingested = count(this.#pusher.acknowledged);
    return `${(state === 'platform unavailable' ? 'unavailable' : state).padEnd(13)}  ingested ${ingested}  buffer ${buffer}  platform ${platform}  ${this.rate}/s`;
  }
}
