import type { RequestEntry } from '../http/request-entry.ts';

/** One request and its answer as they went over the socket. Kept in memory as they are; `masking.ts` says what others see of them. */
export interface Exchange {
  entry: RequestEntry;
  /** Begin and end by the machine's monotonic clock. */
  startedMs: number;
  endedMs: number;
  /** As the request line had it: path and query. */
  target: string;
  /** Name, value, name, value, in the order and the spelling in which they came. */
  rawHeaders: readonly string[];
  /** Unpacked; `undefined` where it was never read to its end. */
  body: Buffer | undefined;
  /** `undefined`: the connection was broken instead. */
  answer: { status: number; headers: Readonly<Record<string, string | number>>; body: Buffer | undefined } | undefined;
}

/** For heads and objects, beside the bodies. */
const HEAD_BYTES = 1_500;

/** The last exchanges, as many as fit into so many bytes: the oldest fall away first. */
export class ExchangeRing {
  readonly #maxBytes: number;
  readonly #byId = new Map<number, Exchange>();
  #bytes = 0;

  constructor(maxBytes = 32 * 1024 * 1024) {
    this.#maxBytes = maxBytes;
  }

  add(exchange: Exchange): void {
    this.#byId.set(exchange.entry.id, exchange);
    this.#bytes += bytesOf(exchange);
    for (const [id, oldest] of this.#byId) {
      if (this.#bytes <= this.#maxBytes) return;
      this.#byId.delete(id);
      this.#bytes -= bytesOf(oldest);
    }
  }

  get(id: number): Exchange | undefined {
    return this.#byId.get(id);
  }

  clear(): void {
    this.#byId.clear();
    this.#bytes = 0;
  }
}

function bytesOf({ body, answer }: Exchange): number {
  return HEAD_BYTES + (body?.length ?? 0) + (answer?.body?.length ?? 0);
}

/** A header's value as it came; several of one name with commas between them. */
export function headerOf({ rawHeaders }: Exchange, wanted: string): string | undefined {
  const values = rawHeaders.filter((_, index) => index % 2 === 1 && rawHeaders[index - 1]!.toLowerCase() === wanted);
  return values.length === 0 ? undefined : values.join(', ');
}
