import type { BufferBounds, DiskUse } from '../../src/buffer/space/bounds.ts';
import { Dropping, type DroppingParts } from '../../src/buffer/space/dropping.ts';
import type { StepSize } from '../../src/buffer/store-facts.ts';
import { SpanWorld } from './span-world.ts';

/** A step wants what is too much and this beside. The bound keeps an eighth for the WAL. */
const SLACK = 16 * 1024;
export const MAX_BYTES = 800_000;
/** Beside each row. */
const ROW_BYTES = 16;

export const disk = (excess: number, more: Partial<DiskUse> = {}): DiskUse => {
  const usedBytes = MAX_BYTES - MAX_BYTES / 8 + excess;
  return { bytes: usedBytes, walBytes: 0, usedBytes, reusableBytes: 0, freeBytes: 1e9, totalBytes: 1e12, ...more };
};
/** So that a step wants this much. */
export const wanting = (bytes: number) => disk(bytes - SLACK);

interface Tables {
  /** Bytes of each copy of a damaged row, with the row. */
  copies?: number[];
  /** Values and bytes of each row, with the row. */
  quarantine?: [values: number, bytes: number][];
  /** Of each segment, with the row. */
  segmentBytes?: number;
}

/** A store whose rows take what they are said to take. */
export class Shrinking extends SpanWorld {
  readonly dropping: Dropping;
  isRead = false;

  constructor(bounds: Partial<BufferBounds> = {}, tables: Tables = {}, stepSize?: StepSize) {
    super(4);
    const { copies = [], quarantine = [], segmentBytes = 10_000 } = tables;
    const { state, pending, flush, segments, onDisk } = this;
    const rows = quarantine.map(([count, bytes], at) => ({ id: at + 1, count, bytes: bytes - ROW_BYTES }));
    const statements = {
      oldestAside: {
        iterate: (max: number) => copies.slice(0, max).map((bytes, at) => ({ id: at + 1, bytes: bytes - ROW_BYTES })),
      },
      oldestQuarantine: { iterate: (max: number) => rows.slice(0, max) },
      bytesOfSegments: {
        get: (from: number, to: number) =>
          [...onDisk.keys()].filter((id) => id >= from && id <= to).length * (segmentBytes - ROW_BYTES),
      },
    };
    this.dropping = new Dropping({
      state,
      pending,
      flush,
      segments,
      statements,
      bounds: { maxBytes: MAX_BYTES, maxAgeMs: 0, minFree: { bytes: 0 }, full: 'drop-oldest', ...bounds },
      isRead: () => this.isRead,
      stepSize,
    } as unknown as DroppingParts);
  }

  /** Flushes of one segment each, with so many values, a second apart. */
  flushes(...values: number[]): this {
    for (const count of values) this.addSpan([[1, count]], { acceptedMs: 1_000 * (this.state.spans.length + 1) });
    return this;
  }

  /** A flush of so many segments of three values each, of series in turn. */
  group(segments: number, acceptedMs: number, run = 1): this {
    for (let i = 0; i < segments; i++) this.addSpan([[1 + (i % 4), 3]], { acceptedMs, run });
    return this;
  }

  keep(use: DiskUse): number {
    return this.dropping.keep(use, () => 0);
  }

  /** What is said once it is on disk. */
  said() {
    this.check();
    this.dropping.committed();
    return this.dropping.take();
  }

  left(): number[] {
    return this.state.spans.map(({ id }) => id);
  }
}

/** What is said of flushes that went by the bound on bytes, with so many values each. */
export const bytes = (...values: number[]) => values.map((count) => ({ reason: 'bytes', values: count }));
