/** Sequence numbers of notification messages. */

/** Message numbers wrap around at 32 bits and skip 0. */
export function nextOf(sequence: number): number {
  return sequence >= 0xffff_ffff ? 1 : sequence + 1;
}

/**
 * Returns the number of messages after `received` that a server with a full queue has discarded. It discards the oldest
 * messages first, and retains at least `minRetained` (OPC 10000-4, 5.14.1.1: two per Publish request). If the queue is
 * not full, missing numbers belong to messages about transfers.
 */
export function discardedBetween(received: number, available: readonly number[], minRetained: number): number {
  if (available.length < minRetained) return 0;
  const oldest = available[0]!;
  return isBefore(received, oldest) ? (oldest - nextOf(received)) >>> 0 : 0;
}

export function isBefore(one: number, other: number): boolean {
  const distance = (other - one) >>> 0;
  return distance !== 0 && distance < 0x8000_0000;
}
