/** Details of an error in addition to its message. Must not contain tokens, secrets or complete bodies. */
export interface ErrorFacts {
  /** Stable identifier of the form `component.problem`, for programs and alerts. */
  code: string;
  /**
   * Whether a retry may succeed without intervention. Set where the error is created and never derived from a
   * message.
   */
  retryable?: boolean;
  /** Corrective action, as an imperative sentence. */
  hint?: string | undefined;
  cause?: unknown;
}

/** Base class of all errors that tagferry throws deliberately. */
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

/** Invalid configuration (exit code 78). `problems` contains complete lines, ready to print. */
export class ConfigurationError extends TagferryError {
  readonly problems: readonly string[];

  constructor(problems: readonly string[]) {
    super(problems.join('\n'), { code: 'config.invalid', hint: 'Fix the problems above, then run `tagferry check`.' });
    this.problems = problems;
  }
}

/** Invalid command line (exit code 2). */
export class UsageError extends TagferryError {
  constructor(message: string, hint?: string) {
    super(message, { code: 'usage', hint });
  }
}

/** Disk or database failure. */
export class StoreError extends TagferryError {}

/** Ingestion has been shut down as requested. The sender must keep the value; no action is required. */
export class SourceStopped extends TagferryError {
  constructor() {
    super('the source has stopped', { code: 'source.stopped', retryable: true });
  }
}

/** Failed request or connection to the platform. */
export class PlatformError extends TagferryError {}

/** Returns the message of any thrown value on one line, for log fields and responses. */
export function messageOf(error: unknown): string {
  const text = error instanceof Error ? error.message || error.name : String(error);
  return text.replaceAll(/\s+/g, ' ').slice(0, 500);
}

/**
 * Returns the `code` of any thrown value (from tagferry, `ECONNREFUSED` from Node, `SQLITE_FULL` from SQLite), or
 * `undefined`.
 */
export function codeOf(error: unknown): string | undefined {
  const code = (error as { code?: unknown } | null | undefined)?.code;
  return typeof code === 'string' ? code : undefined;
}
