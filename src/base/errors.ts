/** What every error of tagferry carries beside its message. None of it may hold a token, a secret or a whole body. */
export interface ErrorFacts {
  /** Stable from release to release, `room.what`: what programs and alerts match on. */
  code: string;
  /** Whether the same thing may succeed later without anyone's doing. Decided here once, never read from a message. */
  retryable?: boolean;
  /** What the person who reads it can do about it, as a sentence in the imperative. */
  hint?: string;
  cause?: unknown;
}

/** Base of every error that tagferry throws on purpose. */
export class TagferryError extends Error {
  readonly code: string;
  readonly retryable: boolean;
  readonly hint: string | undefined;

  constructor(message: string, facts: ErrorFacts) {
    super(message, facts.cause === undefined ? undefined : { cause: facts.cause });
    this.name = new.target.name;
    this.code = facts.code;
    this.retryable = facts.retryable ?? false;
    this.hint = facts.hint;
  }
}

/** The configuration cannot work: exit status 78. `problems` are whole lines, ready to print. */
export class ConfigurationError extends TagferryError {
  readonly problems: readonly string[];

  constructor(problems: readonly string[]) {
    super(problems.join('\n'), { code: 'config.invalid', hint: 'Mend the lines above, then run `tagferry check`.' });
    this.problems = problems;
  }
}

/** A command line that cannot be understood: exit status 2. */
export class UsageError extends TagferryError {
  constructor(message: string, hint?: string) {
    super(message, { code: 'usage', ...(hint === undefined ? {} : { hint }) });
  }
}

/** The disk or a database said no. */
export class StoreError extends TagferryError {}

/** What takes values in has stopped, as it was asked to: whoever brings one keeps it, and there is nothing to mend. */
export class SourceStopped extends TagferryError {
  constructor() {
    super('the source has stopped', { code: 'source.stopped', retryable: true });
  }
}

/** The platform, or the way to it, said no. */
export class PlatformError extends TagferryError {}

/** The message of anything thrown, on one line, for a log field or an answer. */
export function messageOf(error: unknown): string {
  const text = error instanceof Error ? error.message || error.name : String(error);
  return text.replaceAll(/\s+/g, ' ').slice(0, 500);
}

/** The `code` of anything thrown (ours, Node's `ECONNREFUSED`, SQLite's `SQLITE_FULL`), or `undefined`. */
export function codeOf(error: unknown): string | undefined {
  const code = (error as { code?: unknown } | null | undefined)?.code;
  return typeof code === 'string' ? code : undefined;
}
