/** How much the inbox keeps, and for how long. */
export interface InboxLimits {
  /** Settled events are kept so long, in running time. */
  keepMs: number;
  /** Bytes on disk above which the oldest settled ones go. */
  keepBytes: number;
  /** Bytes on disk above which nothing is taken in: only a reaction that hangs for days leads here. */
  maxBytes: number;
}

export const INBOX_LIMITS: InboxLimits = {
  keepMs: 30 * 86_400_000,
  keepBytes: 64 * 1024 * 1024,
  maxBytes: 256 * 1024 * 1024,
};
