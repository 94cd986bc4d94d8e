/**
 * Reads the server's event stream and reconnects when the stream ends.
 *
 *   connecting ──► open ──► lost (since when) ──► connecting …
 *        └───────► refused (with the response): waits for a token
 *
 * When reconnecting, the link sends the ID of the latest event, so that none is missed or repeated. The server sends an
 * event every second. After several seconds without an event, the connection is considered lost.
 */

/** Returns the number of milliseconds since the page was opened, independent of the wall clock. */
export const pageMs = (): number => performance.now();

export type LinkState =
  | { kind: 'connecting' }
  | { kind: 'open' }
  /** `sinceMs`: value of `pageMs` when the connection was lost. */
  | { kind: 'lost'; sinceMs: number; why: string }
  | { kind: 'refused'; status: number; error: string; hint: string };

export interface LiveLinkOptions<Events> {
  /** URL of the stream with the selected subjects. */
  address(): string;
  token(): string | undefined;
  received<Name extends keyof Events>(name: Name, data: Events[Name]): void;
  /** Called when the state changes. */
  changed(): void;
}

const SILENT_MS = 8_000;
const FIRST_WAIT_MS = 500;
const MAX_WAIT_MS = 4_000;

export class LiveLink<Events> {
  readonly #options: LiveLinkOptions<Events>;
  state: LinkState = { kind: 'connecting' };
  #seen: string | undefined;
  #current: AbortController | undefined;
  #failures = 0;

  constructor(options: LiveLinkOptions<Events>) {
    this.#options = options;
  }

  /** Connects, or reconnects with a different token or different subjects. */
  start(): void {
    this.#current?.abort();
    const current = new AbortController();
    this.#current = current;
    void this.#run(current.signal);
  }

  async #run(signal: AbortSignal): Promise<void> {
    while (!signal.aborted) {
      const why = await this.#read(signal).then(
        () => 'connection closed',
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
      timer = window.setTimeout(() => dead.abort(new Error('timeout')), SILENT_MS);
    };
    alive();
    try {
      const token = this.#options.token();
      const headers: Record<string, string> = {
        ...(token === undefined ? {} : { Authorization: `Bearer ${token}` }),
        ...(this.#seen === undefined ? {} : { 'Last-Event-ID': this.#seen }),
      };
      const address = this.#options.address();
      const response = await fetch(address, { headers, signal, cache: 'no-store', credentials: 'omit' });
      if (response.status === 401 || response.status === 403) return await this.#refused(response, outer);
      if (!response.ok || !response.body) throw new Error(`response ${response.status}`);
      for await (const { name, data, id } of readEvents(response.body)) {
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

  async #refused(response: Response, signal: AbortSignal): Promise<void> {
    const { error = '', hint = '' } = (await response.json().catch(() => ({}))) as { error?: string; hint?: string };
    if (!signal.aborted) this.#enter({ kind: 'refused', status: response.status, error, hint });
  }

  #enter(state: LinkState): void {
    this.state = state;
    this.#options.changed();
  }
}

interface ReceivedEvent {
  name: string;
  data: string;
  /** ID of this event, or of the latest event that has an ID. */
  id: string | undefined;
}

/** Maximum event size, which is much larger than the largest gateway event. */
const MAX_CHARACTERS = 16 * 1024 * 1024;

/** Reads server-sent events from a fetched body, because `EventSource` cannot send a token. */
async function* readEvents(body: ReadableStream<Uint8Array>): AsyncGenerator<ReceivedEvent> {
  const reader = body.getReader();
  const decoder = new TextDecoder();
  let rest = '';
  let id: string | undefined;
  try {
    for (;;) {
      const { done, value } = await reader.read();
      if (done) return;
      rest += decoder.decode(value, { stream: true });
      if (rest.length > MAX_CHARACTERS) throw new Error('event too long');
      for (let end = rest.indexOf('\n\n'); end >= 0; end = rest.indexOf('\n\n')) {
        const event = { name: 'message', data: '', id };
        for (const line of rest.slice(0, end).split('\n')) {
          if (line.startsWith('event: ')) event.name = line.slice(7);
          else if (line.startsWith('data: ')) event.data += line.slice(6);
          else if (line.startsWith('id: ')) id = event.id = line.slice(4);
        }
        rest = rest.slice(end + 2);
        yield event;
      }
    }
  } finally {
    reader.cancel().catch(() => {});
  }
}
