import { StoreError } from '../../base/errors.ts';
import type { Note } from '../../buffer/client/notes.ts';
import type { ValueColumns } from '../../buffer/format/value-columns.ts';

/** Destination for accepted values: the buffer interface that sources use. */
export interface ValueSink {
  /**
   * Resolves when all values and notes are on disk. Rejects with a `StoreError` if none of them is stored
   * (`buffer.full`, `store.unwritable`, …), which may contain `retryAfterMs`. The sink owns the columns after the call.
   */
  append(columns: ValueColumns, notes?: readonly Note[]): Promise<void>;
  /** Requests an early commit because a sender is waiting for it. Limited to ten commits per second. */
  commitSoon?(): void;
}

/** Called after each commit with the source and the number of values. */
export type CountIngested = (source: string, values: number) => void;

const DEFAULT_RETRY_MS = 5_000;

/** Returns the retry delay in milliseconds, or `undefined` if the error is not a `StoreError`. */
export function retryAfterOf(error: unknown): number | undefined {
  if (!(error instanceof StoreError)) return undefined;
  const asked = (error as { retryAfterMs?: unknown }).retryAfterMs;
  return typeof asked === 'number' && Number.isFinite(asked) && asked >= 0 ? asked : DEFAULT_RETRY_MS;
}
