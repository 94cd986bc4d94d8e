/**
 * What the page knows of the gateway, and tells those who show it. Everything stands in this tab's memory: a reload asks anew, the token
 * too, unless it stands in the address.
 */
import type { Hello, LiveEvents, Topic } from '../../ops/live/live-events.ts';
import type { StatusReport } from '../../ops/status-report.ts';
import { type LinkState, LiveLink } from '../stream/live-link.ts';
import { timeIn } from './gateway-time.ts';

export class Model {
  hello: Hello | undefined;
  now: StatusReport | undefined;
  readonly #link: LiveLink<LiveEvents>;
  #token: string | undefined;
  #topics: readonly Topic[] = ['now'];
  /** The gateway's clock at a moment of this page's own: this machine's clock may say what it likes. */
  #heard: { atMs: number; pageMs: number } | undefined;
  readonly #listeners = new Set<() => void>();
  #isDue = false;

  constructor(token: string | undefined) {
    this.#token = token;
    this.#link = new LiveLink<LiveEvents>({
      address: () => `live/stream?of=${this.#topics.join(',')}`,
      token: () => this.#token,
      received: (name, data) => this.#received(name, data),
      changed: () => this.#changed(),
    });
  }

  start(): void {
    this.#link.start();
  }

  get link(): LinkState {
    return this.#link.state;
  }

  /** A person typed it. */
  setToken(token: string): void {
    this.#token = token;
    this.#link.state = { kind: 'connecting' };
    this.#link.start();
    this.#changed();
  }

  /** The gateway's wall clock now; `undefined` before it spoke. */
  get gatewayMs(): number | undefined {
    return this.#heard && this.#heard.atMs + performance.now() - this.#heard.pageMs;
  }

  /** A moment of the gateway's wall clock, as its people have it. */
  readonly time = (atMs: number): string => timeIn(this.hello?.zone ?? { name: null, offsetMinutes: 0 }, atMs);

  get hasToken(): boolean {
    return this.#token !== undefined;
  }

  /** Calls after something is new, once for all that came together; returns what ends it. */
  listen(listener: () => void): () => void {
    this.#listeners.add(listener);
    return () => this.#listeners.delete(listener);
  }

  readonly #take: { [Name in keyof LiveEvents]: (data: LiveEvents[Name]) => void } = {
    hello: (hello) => {
      this.hello = hello;
    },
    tick: ({ atMs }) => {
      this.#heard = { atMs, pageMs: performance.now() };
    },
    now: (now) => {
      this.now = now;
    },
  };

  #received<Name extends keyof LiveEvents>(name: Name, data: LiveEvents[Name]): void {
    // One that this page does not know comes from a newer gateway.
    this.#take[name]?.(data);
    this.#changed();
  }

  #changed(): void {
    if (this.#isDue) return;
    this.#isDue = true;
    window.setTimeout(() => {
      this.#isDue = false;
      for (const listener of this.#listeners) listener();
    }, 0);
  }
}
