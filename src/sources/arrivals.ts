/** Which values of a source have arrived, and what came for the others. Owned by the source's gate. */
import type { Columns, STATUS_FLAGS } from '../buffer/format/value-columns.ts';
import type { Point } from './points.ts';

/** One value as `sources test` shows it: what was read, or why nothing was. */
export type TestedValue = { point: Point } & (
  | { raw: number; timeMs?: number; quality?: keyof typeof STATUS_FLAGS }
  | { problem: string; hint?: string }
);

/** What came and could not be read. */
export interface Unread {
  /** The latest. */
  problem: string;
  count: number;
}

export class Arrivals {
  readonly #arrived = new Set<number>();
  readonly #unread = new Map<number, Unread>();
  readonly #listeners = new Set<(heard: TestedValue) => void>();
  #rejected: Unread | undefined;

  /** Tells of each reading and of what could not be read from now on; returns what ends it. */
  listen(listener: (heard: TestedValue) => void): () => void {
    this.#listeners.add(listener);
    return () => this.#listeners.delete(listener);
  }

  get isHeard(): boolean {
    return this.#listeners.size > 0;
  }

  tell(heard: TestedValue): void {
    for (const listen of this.#listeners) listen(heard);
  }

  note(series: number): void {
    this.#arrived.add(series);
    if (this.#unread.size > 0) this.#unread.delete(series);
  }

  noteAll({ series, length }: Columns): void {
    for (let at = 0; at < length; at++) this.note(series[at]!);
  }

  /** Something came for a value. */
  noteUnread(point: Point, problem: string): void {
    this.#unread.set(point.series, { problem, count: (this.#unread.get(point.series)?.count ?? 0) + 1 });
    this.tell({ point, problem });
  }

  /** Lines or files came that name no value. */
  reject(problem: string, count = 1): void {
    this.#rejected = { problem, count: (this.#rejected?.count ?? 0) + count };
  }

  get rejected(): Unread | undefined {
    return this.#rejected;
  }

  /** Whether a value has arrived since the source was opened. */
  has({ series }: Point): boolean {
    return this.#arrived.has(series);
  }

  /** Since the last reading of the value. */
  unreadOf({ series }: Point): Unread | undefined {
    return this.#unread.get(series);
  }
}
