/** One request as it was answered. No tokens, no bodies: these are in its exchange. */
export interface RequestEntry {
  /** In the order of their ends, from 1; the answer bears it as `x-request-id`. */
  id: number;
  at: string;
  method: string;
  path: string;
  /** 0: the connection was broken instead of an answer. */
  status: number;
  durationMs: number;
  requestBytes: number;
  user: string | undefined;
  story: string | undefined;
  /** Why it was refused, in the words of the answer. */
  refused?: string;
  /** Which faults had a hand in it. */
  fault: string | undefined;
}
