import { StoreError } from '../errors.ts';
import { type SegmentValues, unpackSegment } from './segment.ts';
import { type Span, segmentId } from './span.ts';

/** So many values of unpacked segments are kept: a segment that goes out in several posts is unpacked once. */
const MOST_KEPT_VALUES = 100_000;

/**
 * Segments by their place. What was packed but not yet committed is found too. A segment that does not read is told to
 * `onDamaged` and gives `undefined`: the caller goes on with the others.
 */
export class SegmentReader {
  readonly #get: (id: number) => Uint8Array | undefined;
  readonly #onDamaged: (span: Span, entry: number, bytes: Uint8Array | undefined) => void;
  readonly #kept = new Map<number, SegmentValues>();
  #keptValues = 0;

  constructor(
    get: (id: number) => Uint8Array | undefined,
    onDamaged: (span: Span, entry: number, bytes: Uint8Array | undefined) => void,
  ) {
    this.#get = get;
    this.#onDamaged = onDamaged;
  }

  read(span: Span, entry: number): SegmentValues | undefined {
    const id = segmentId(span.id, entry);
    const kept = this.#kept.get(id);
    if (kept) return kept;
    const bytes = this.#get(id);
    const values = bytes && this.#unpack(bytes, span.count[entry]!);
    if (!values) {
      this.#onDamaged(span, entry, bytes);
      return undefined;
    }
    this.#keep(id, values);
    return values;
  }

  forget(id: number): void {
    const kept = this.#kept.get(id);
    if (!kept) return;
    this.#kept.delete(id);
    this.#keptValues -= kept.count;
  }

  #unpack(bytes: Uint8Array, count: number): SegmentValues | undefined {
    try {
      const values = unpackSegment(bytes);
      return values.count === count ? values : undefined;
    } catch (error) {
      if (error instanceof StoreError) return undefined;
      throw error;
    }
  }

  #keep(id: number, values: SegmentValues): void {
    this.#kept.set(id, values);
    this.#keptValues += values.count;
    for (const oldest of this.#kept.keys()) {
      if (this.#keptValues <= MOST_KEPT_VALUES) break;
      this.forget(oldest);
    }
  }
}
