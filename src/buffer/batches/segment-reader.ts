import { StoreError } from '../../base/errors.ts';
import { type SegmentValues, unpackSegment } from '../format/segment.ts';
import { type Span, segmentId } from '../span.ts';

/** A segment that goes out in several posts is unpacked once: values of so many are kept, and each segment counts for some. */
const MAX_KEPT_VALUES = 100_000;
/** Its columns cost some 700 bytes before the first value. */
const VALUES_A_SEGMENT = 40;

/**
 * Segments by their place. What was packed but not yet committed is found too, and what stands in a file that was set aside. A
 * segment that does not read is told to `onDamaged` and gives `undefined`: the caller goes on with the others. Then its entry is
 * gone, or the segment is awaited: what follows it in its series must not overtake it.
 */
export class SegmentReader {
  readonly #get: (id: number, span: Span, entry: number) => Uint8Array | undefined;
  readonly #onDamaged: (span: Span, entry: number, bytes: Uint8Array | undefined) => void;
  readonly #kept = new Map<number, SegmentValues>();
  #keptValues = 0;

  constructor(
    get: (id: number, span: Span, entry: number) => Uint8Array | undefined,
    onDamaged: (span: Span, entry: number, bytes: Uint8Array | undefined) => void,
  ) {
    this.#get = get;
    this.#onDamaged = onDamaged;
  }

  read(span: Span, entry: number): SegmentValues | undefined {
    const id = segmentId(span.id, entry);
    const kept = this.#kept.get(id);
    if (kept) return kept;
    const bytes = this.#get(id, span, entry);
    const values = bytes && this.#unpack(bytes, span, entry);
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
    this.#keptValues -= kept.count + VALUES_A_SEGMENT;
  }

  #unpack(bytes: Uint8Array, span: Span, entry: number): SegmentValues | undefined {
    try {
      const values = unpackSegment(bytes);
      const isThis = values.count === span.count[entry] && values.series === span.series[entry];
      return isThis ? values : undefined;
    } catch (error) {
      if (error instanceof StoreError) return undefined;
      throw error;
    }
  }

  #keep(id: number, values: SegmentValues): void {
    this.#kept.set(id, values);
    this.#keptValues += values.count + VALUES_A_SEGMENT;
    for (const oldest of this.#kept.keys()) {
      if (this.#keptValues <= MAX_KEPT_VALUES) break;
      this.forget(oldest);
    }
  }
}
