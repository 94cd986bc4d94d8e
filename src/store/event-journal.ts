/** Progress of the reactions to an event, as stored in the inbox. */

/** Progress of one action for an event. `action` is empty for the whole reaction. */
export interface ActionProgress {
  reaction: string;
  action: string;
  /** `begun`: started, outcome unknown. */
  state: 'begun' | 'failed' | 'done' | 'dead' | 'skipped';
  /** Number of starts for a command, number of failures for other actions. */
  tries: number;
  /** Latest failure. */
  detail?: string;
}

/** Outcome of one action, for display. */
export interface Attempt {
  reaction: string;
  action: string;
  outcome: string;
  detail?: string;
  durationMs: number;
  /** Wall-clock time, in milliseconds. */
  atMs: number;
}
