import { StoreError } from '../base/errors.ts';
import type { Note } from '../buffer/client/notes.ts';
import type { ValueColumns } from '../buffer/format/value-columns.ts';

/** Where accepted values go: the buffer, as the sources see it. */
export interface ValueSink {
  /**
   * Resolves when every value is on disk, the notes with them. Rejects with a `StoreError` when none of them is kept
   * (`buffer.full`, `store.unwritable`, …), which may carry `retryAfterMs`. The columns belong to the sink from the call on.
   */
  append(columns: ValueColumns, notes?: readonly Note[]): Promise<void>;
  /** Somebody can give nothing more before a commit: it comes early, not more than ten a second. */
  hurry?(): void;
}

/** Told after each commit: which source, how many values. */
export type CountIngested = (source: string, values: number) => void;

const DEFAULT_RETRY_MS = 5_000;

/** When it makes sense to offer the values again after `error`; `undefined` where that is nothing the store said. */
export function retryAfterOf(error: unknown): number | undefined {
  if (!(error instanceof StoreError)) return undefined;
  const asked = (error as { retryAfterMs?: unknown }).retryAfterMs;
  return typeof asked === 'number' && Number.isFinite(asked) && asked >= 0 ? asked : DEFAULT_RETRY_MS;
}
