/**
 * Times for values that come without one to several agents of a group: no series gets the same time from two of them, or the platform
 * would keep only the later value (specification, values).
 */
import type { GroupMember } from '../config/tags.ts';

/** Members of a group share the milliseconds: each gives times of its own residue, whatever its clock says. `timeMs` or the next one. */
export function ownTime(timeMs: number, member: GroupMember | undefined): number {
  if (member === undefined) return timeMs;
  const { index, of } = member;
  return timeMs + ((((index - timeMs) % of) + of) % of);
}

/**
 * Times of values from a stream: when the stream stored their message, so that a message which another agent gets again has the same
 * time. Messages of one series that were stored in one millisecond get the following ones, in the order of the stream.
 */
export class StreamTimes {
  readonly #last = new Map<number, { seq: number; timeMs: number }>();

  of(series: number, seq: number, storedMs: number, member: GroupMember | undefined): number {
    const last = this.#last.get(series);
    // Stored before the last one: it is delivered once more, with the time that it had.
    if (last !== undefined && seq <= last.seq) return ownTime(storedMs, member);
    const timeMs = ownTime(last === undefined ? storedMs : Math.max(storedMs, last.timeMs + 1), member);
    this.#last.set(series, { seq, timeMs });
    return timeMs;
  }
}
