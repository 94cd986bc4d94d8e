/**
 * The page's line to the machine that it came from: reads the stream, and begins anew where it ends.
 *
 *   connecting ──► open ──► lost (since when) ──► connecting …
 *        └───────► refused (what the answer said): waits for a token
 *
 * With each new beginning it says up to where it had come, so nothing is missed and nothing sent twice. A line on which nothing comes
 * for some seconds is dead, whatever the browser says: the stream speaks each second.
 */
import { pageMs } from './clock.ts';
import { readEvents } from './read-events.ts';

export type LinkState =
  | { kind: 'connecting' }
  | { kind: 'open' }
  /** `sinceMs`: of `pageMs`. */
  | { kind: 'lost'; sinceMs: number; why: string }
  | { kind: 'refused'; status: number; error: string; hint: string };

export interface LiveLinkOptions<Events> {
  /** Of the stream, with what is asked for. */
  address(): string;
  token(): string | undefined;
  received<Name extends keyof Events>(name: Name, data: Events[Name]): void;
  /** Its state is another. */
  changed(): void;
}

const SILENT_MS = 8_000;
const FIRST_WAIT_MS = 500;
const MAX_WAIT_MS = 4_000;

export class LiveLink<Events> {
  readonly #options: LiveLinkOptions<Events>;
  state: LinkState = { kind: 'connecting' };
  #seen: string | undefined;
  #going: AbortController | undefined;
  #failures = 0;

  constructor(options: LiveLinkOptions<Events>) {
    this.#options = options;
  }

  /** Begins, or begins anew: with another token, or asking for something else. */
  start(): void {
    this.#going?.abort();
    const going = new AbortController();
    this.#going = going;
    void this.#run(going.signal);
  }

  async #run(signal: AbortSignal): Promise<void> {
    while (!signal.aborted) {
      const why = await this.#read(signal).then(
        () => 'it ended the connection',
        (error: unknown) => String(error instanceof Error ? error.message : error),
      );
      if (signal.aborted || this.state.kind === 'refused') return;
      if (this.state.kind !== 'lost') this.#enter({ kind: 'lost', sinceMs: pageMs(), why });
      const waitMs = Math.min(MAX_WAIT_MS, FIRST_WAIT_MS * 2 ** this.#failures++);
      await new Promise((resolve) => window.setTimeout(resolve, waitMs));
    }
  }

  async #read(outer: AbortSignal): Promise<void> {
    const dead = new AbortController();
    const signal = AbortSignal.any([outer, dead.signal]);
    let timer = 0;
    const alive = () => {
      window.clearTimeout(timer);
      timer = window.setTimeout(() => dead.abort(new Error('nothing comes any more')), SILENT_MS);
    };
    alive();
    try {
      const token = this.#options.token();
      const headers: Record<string, string> = {
        ...(token === undefined ? {} : { Authorization: `Bearer ${token}` }),
        ...(this.#seen === undefined ? {} : { 'Last-Event-ID': this.#seen }),
      };
      const answer = await fetch(this.#options.address(), { headers, signal, cache: 'no-store', credentials: 'omit' });
      if (answer.status === 401 || answer.status === 403) return await this.#refused(answer, outer);
      if (!answer.ok || !answer.body) throw new Error(`it answers ${answer.status}`);
      for await (const { name, data, id } of readEvents(answer.body)) {
        if (outer.aborted) return;
        alive();
        if (this.state.kind !== 'open') {
          this.#failures = 0;
          this.#enter({ kind: 'open' });
        }
        this.#options.received(name as keyof Events, JSON.parse(data) as Events[keyof Events]);
        this.#seen = id ?? this.#seen;
      }
    } finally {
      window.clearTimeout(timer);
    }
  }

  async #refused(answer: Response, signal: AbortSignal): Promise<void> {
    const { error = '', hint = '' } = (await answer.json().catch(() => ({}))) as { error?: string; hint?: string };
    if (!signal.aborted) this.#enter({ kind: 'refused', status: answer.status, error, hint });
  }

  #enter(state: LinkState): void {
    this.state = state;
    this.#options.changed();
  }
}
