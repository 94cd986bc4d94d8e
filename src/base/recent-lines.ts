/**
 * In-memory buffer of recent log lines, for users without access to the journal. The number and length of lines are
 * limited, so that it requires at most about 3 MB. Lost on a crash, unlike the journal.
 */
const MAX_LINES = 1_000;
const MAX_CHARACTERS = 1_500;
const MAX_MEMBER_CHARACTERS = 200;
const MAX_ITEMS = 5;
/** Members that are kept if the line exceeds the limit even with shortened members. */
const HEAD = ['level', 'time', 'event', 'tag', 'asset', 'code', 'error', 'msg'];

export interface LinesSince {
  lines: string[];
  /** Number of lines overwritten before they were read. */
  missed: number;
  /** Line number to pass to the next call. */
  next: number;
}

export class RecentLines {
  readonly #lines: string[] = [];
  #written = 0;
  #dropped = 0;
  readonly #waiting = new Set<() => void>();

  /** Total number of lines ever stored. */
  get written(): number {
    return this.#written;
  }

  /** Number of lines dropped because the log output was not writable. */
  get dropped(): number {
    return this.#dropped;
  }

  countDropped(): void {
    this.#dropped++;
  }

  /** Stores one line of JSON without its line feed. A long line is shortened but stays valid JSON. */
  add(line: string): void {
    this.#lines[this.#written++ % MAX_LINES] = shortened(line);
    for (const wake of this.#waiting) wake();
  }

  /** Returns the lines from number `next`; 0 is the first line. */
  since(next: number): LinesSince {
    const from = Math.max(next, this.#written - MAX_LINES);
    const lines = Array.from({ length: this.#written - from }, (_, i) => this.#lines[(from + i) % MAX_LINES]!);
    return { lines, missed: from - next, next: this.#written };
  }

  /** Resolves when a line with number `next` exists or the signal aborts. */
  changed(next: number, signal: AbortSignal): Promise<void> {
    if (this.#written > next || signal.aborted) return Promise.resolve();
    return new Promise((resolve) => {
      const wake = () => {
        this.#waiting.delete(wake);
        signal.removeEventListener('abort', wake);
        resolve();
      };
      this.#waiting.add(wake);
      signal.addEventListener('abort', wake);
    });
  }
}

function shortened(line: string): string {
  const text = line.trimEnd();
  if (text.length <= MAX_CHARACTERS) return text;
  try {
    const whole = JSON.parse(text) as Record<string, unknown>;
    const short = JSON.stringify({ ...(shortMember(whole) as object), cut: true });
    if (short.length <= MAX_CHARACTERS) return short;
    const head = HEAD.flatMap((name) => (name in whole ? [[name, headMember(whole[name])]] : []));
    return JSON.stringify({ ...Object.fromEntries(head), cut: true });
  } catch {
    return JSON.stringify({ msg: text.slice(0, MAX_MEMBER_CHARACTERS), cut: true });
  }
}

function shortMember(value: unknown): unknown {
  if (typeof value === 'string') return cutText(value);
  if (Array.isArray(value)) return value.slice(0, MAX_ITEMS).map(shortMember);
  if (typeof value !== 'object' || value === null) return value;
  return Object.fromEntries(Object.entries(value).map(([name, member]) => [name, shortMember(member)]));
}

/** Truncates a value. Escaping can turn one character into six, and eight such members must stay within the limit. */
function headMember(value: unknown): unknown {
  if (typeof value === 'string') return value.slice(0, 25);
  return typeof value === 'number' ? value : undefined;
}

function cutText(text: string): string {
  return text.length <= MAX_MEMBER_CHARACTERS ? text : `${text.slice(0, MAX_MEMBER_CHARACTERS)}…`;
}
