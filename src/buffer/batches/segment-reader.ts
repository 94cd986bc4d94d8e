import { readable } from '../format/bytes.ts';
import { type SegmentValues, unpackSegment } from '../format/segment.ts';
import { type Span, segmentId } from '../span.ts';

/** Maximum number of cached values, so that a segment that is posted in parts is unpacked only once. */
const MAX_CACHED_VALUES = 100_000;
/** Fixed cost of a cached segment (700 bytes), in values. */
const VALUES_A_SEGMENT = 40;

/**
 * Reads segments, including those packed but not committed and those in files that were set aside. If a segment is
 * unreadable, calls `onDamaged` and returns `undefined`. The segment is then either gone or may still be found
 * (`Carrying.awaits`). In the latter case, later values of its series must not overtake it.
 */
export class SegmentReader {
  readonly #get: (id: number, span: Span, entry: number) => Uint8Array | undefined;
  readonly #onDamaged: (span: Span, entry: number, bytes: Uint8Array | undefined) => void;
  /** Oldest first. Segment IDs are never reused, so settled segments are harmless here. */
  readonly #cache = new Map<number, SegmentValues>();
  #cachedValues = 0;

  constructor(
    get: (id: number, span: Span, entry: number) => Uint8Array | undefined,
    onDamaged: (span: Span, entry: number, bytes: Uint8Array | undefined) => void,
  ) {
    this.#get = get;
    this.#onDamaged = onDamaged;
  }

  /** Reads a segment for a post that may contain only part of it. */
  read(span: Span, entry: number): SegmentValues | undefined {
    const id = segmentId(span.id, entry);
    const cached = this.#cache.get(id);
    if (cached) return cached;
    const values = this.readOnce(span, entry);
    if (values) this.#add(id, values);
    return values;
  }

  /** Reads a segment without adding it to the cache. */
  readOnce(span: Span, entry: number): SegmentValues | undefined {
    const bytes = this.#get(segmentId(span.id, entry), span, entry);
    const values = bytes && readable(() => unpackSegment(bytes));
    if (values?.count === span.count[entry] && values?.series === span.series[entry]) return values;
    this.#onDamaged(span, entry, bytes);
    return undefined;
  }

  #add(id: number, values: SegmentValues): void {
    this.#cache.set(id, values);
    this.#cachedValues += values.count + VALUES_A_SEGMENT;
    for (const [oldest, { count }] of this.#cache) {
      if (this.#cachedValues <= MAX_CACHED_VALUES) break;
      this.#cache.delete(oldest);
      this.#cachedValues -= count + VALUES_A_SEGMENT;
    }
  }
}
