import type { StatusReport } from '../../ops/status-report.ts';
import type { Sandbox } from '../../sandbox/sandbox.ts';
import type { AgentChild } from './agent-child.ts';
import type { Pusher } from './pusher.ts';
import { count, progressBar, type Stage } from './stage.ts';

const LOOK_MS = 200;
/** Looks over which the rate is measured: 3 s. */
const RATE_LOOKS = 15;

export interface Drain {
  total: number;
  /** Still to come. Called at each look. */
  left(): number;
}

/** Keeps the live line: counters, and a bar while the backlog of the outage drains. */
export class Watch {
  readonly #stage: Stage;
  readonly #agent: AgentChild;
  readonly #sandbox: Sandbox;
  readonly #pusher: Pusher;
  readonly #plainEveryMs: number;
  readonly #acknowledged: number[] = [];
  #timer: NodeJS.Timeout | undefined;
  #looking = false;
  #sincePlainMs = 0;
  #latest: StatusReport | undefined;
  /** Set while the backlog of the outage drains. */
  drain: Drain | undefined;
  /** The platform is away because the demo took it away. */
  away = false;

  constructor(stage: Stage, parts: { agent: AgentChild; sandbox: Sandbox; pusher: Pusher; plainEveryMs: number }) {
    this.#stage = stage;
    this.#agent = parts.agent;
    this.#sandbox = parts.sandbox;
    this.#pusher = parts.pusher;
    this.#plainEveryMs = parts.plainEveryMs;
  }

  start(): void {
    this.#timer = setInterval(() => void this.#look(), LOOK_MS);
  }

  stop(): void {
    clearInterval(this.#timer);
    this.#timer = undefined;
  }

  /** The agent's newest answer to `/status`. */
  get latest(): StatusReport | undefined {
    return this.#latest;
  }

  /** Values a second that were acknowledged lately. */
  get rate(): number {
    const [first = 0] = this.#acknowledged;
    const last = this.#acknowledged.at(-1) ?? 0;
    const seconds = ((this.#acknowledged.length - 1) * LOOK_MS) / 1000;
    return seconds > 0 ? Math.round((last - first) / seconds) : 0;
  }

  async #look(): Promise<void> {
    if (this.#looking) return;
    this.#looking = true;
    this.#acknowledged.push(this.#pusher.acknowledged);
    if (this.#acknowledged.length > RATE_LOOKS + 1) this.#acknowledged.shift();
    this.#latest = (await this.#agent.status()) ?? this.#latest;
    this.#looking = false;
    if (this.#timer === undefined) return;
    this.#sincePlainMs += LOOK_MS;
    // Plain lines are for what moves: the outage and the drain.
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
    const taken = count(this.#pusher.acknowledged);
    return `${state.padEnd(13)}  in ${taken}  buffer ${buffer}  platform ${platform}  ${this.rate}/s`;
  }
}
