/**
 * The last lines of a log, in memory, for whoever may not read where they are written. Bounded in number and in length, so that
 * no trouble, however talkative, costs more than some 3 MB. A crash leaves nothing of it behind: the journal does.
 */
const MAX_LINES = 1_000;
const MAX_CHARACTERS = 1_500;
const MAX_MEMBER_CHARACTERS = 200;
const MAX_ITEMS = 5;
/** What tells a line from others, where even its shortened members are too many. */
const HEAD = ['level', 'time', 'event', 'tag', 'asset', 'code', 'error', 'msg'];

export interface LinesSince {
  lines: string[];
  /** Overwritten before they were asked for. */
  missed: number;
  /** What to ask with next. */
  next: number;
}

export class RecentLines {
  readonly #lines: string[] = [];
  #written = 0;
  readonly #waiting = new Set<() => void>();

  /** How many were kept ever. */
  get written(): number {
    return this.#written;
  }

  /** Keeps one line of JSON, without its line feed; a long one shortened, and JSON still. */
  add(line: string): void {
    this.#lines[this.#written++ % MAX_LINES] = shortened(line);
    for (const wake of this.#waiting) wake();
  }

  /** What was written from number `next` on; 0 is the first line ever. */
  since(next: number): LinesSince {
    const from = Math.max(next, this.#written - MAX_LINES);
    const lines = Array.from({ length: this.#written - from }, (_, i) => this.#lines[(from + i) % MAX_LINES]!);
    return { lines, missed: from - next, next: this.#written };
  }

  /** Resolves when there is a line from number `next` on, or when the signal fires. */
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

/** Escapes may make six characters of one: eight such members stay within the bound. */
function headMember(value: unknown): unknown {
  if (typeof value === 'string') return value.slice(0, 25);
  return typeof value === 'number' ? value : undefined;
}

function cutText(text: string): string {
  return text.length <= MAX_MEMBER_CHARACTERS ? text : `${text.slice(0, MAX_MEMBER_CHARACTERS)}…`;
}
