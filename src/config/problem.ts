/**
 * What is wrong with the configuration, where, and what to write instead. Everything in this room reports problems and
 * goes on, so that one run of `check` shows them all.
 */
export interface Problem {
  /** The file as the user named its folder, or `environment`, or `credential <name>`. */
  file: string;
  /** From 1; `null` where the place has no lines (environment, folder). */
  line: number | null;
  column: number | null;
  /** The offending text, masked and cut; empty where there is none or where it is a secret. */
  text: string;
  /** What is wrong. */
  reason: string;
  /** What to write instead, as a phrase in the imperative. */
  instead: string;
  severity: 'error' | 'warning';
  /** It is this user who may not read something: another may. */
  accessDenied?: true;
}

export interface Place {
  file: string;
  line: number | null;
  column: number | null;
}

/** `tags.d/10-line.yaml:3`; the file alone where it has no lines. */
export function placeName({ file, line }: Place): string {
  return line === null ? file : `${file}:${line}`;
}

const MAX_SHOWN = 60;

/**
 * `file:line:column: what is wrong, what to write instead`, as compilers write it, so that editors and terminals lead there. The
 * offending text is in it: before what is wrong where that does not name it. Warnings are marked.
 */
export function problemLine(problem: Problem): string {
  const { file, line, column, text, reason, instead } = problem;
  const at = [file, ...(line === null ? [] : [line, column ?? 1])].join(':');
  const mark = problem.severity === 'warning' ? 'warning: ' : '';
  const what = `${reason}, ${instead}`.includes(text) ? '' : `"${text}": `;
  return `${at}: ${mark}${what}${reason}, ${instead}`;
}

/** Problems of one run, in the order found. */
export class Problems {
  readonly list: Problem[] = [];

  error(place: Place, reason: string, instead: string, text = ''): void {
    this.#add('error', place, reason, instead, text);
  }

  warning(place: Place, reason: string, instead: string, text = ''): void {
    this.#add('warning', place, reason, instead, text);
  }

  /** An error for whoever runs with this configuration; for anybody else who looks at it a doubt. */
  unreadable(place: Place, reason: string, instead: string, text = ''): void {
    this.#add('error', place, reason, instead, text);
    this.list.at(-1)!.accessDenied = true;
  }

  get errors(): Problem[] {
    return this.list.filter((problem) => problem.severity === 'error');
  }

  get warnings(): Problem[] {
    return this.list.filter((problem) => problem.severity === 'warning');
  }

  #add(severity: Problem['severity'], place: Place, reason: string, instead: string, text: string): void {
    const { file, line, column } = place;
    this.list.push({ file, line, column, text: printable(text), reason, instead, severity });
  }
}

/** By file (in the order in which they first appear; what has no lines comes last), then by line and column. */
export function sortProblems(problems: readonly Problem[]): Problem[] {
  const files = [...new Set(problems.map((problem) => problem.file))];
  return [...problems].sort(
    (one, other) =>
      Number(one.line === null) - Number(other.line === null) ||
      files.indexOf(one.file) - files.indexOf(other.file) ||
      (one.line ?? 0) - (other.line ?? 0) ||
      (one.column ?? 0) - (other.column ?? 0),
  );
}

/** One line, no control characters, no password of an address, not longer than a line of a terminal bears. */
export function printable(text: string, maxShown = MAX_SHOWN): string {
  const plain = text
    .replaceAll(/\/\/[^/\s]*@/g, '//***@')
    // biome-ignore lint/suspicious/noControlCharactersInRegex: these are what a terminal must not be sent
    .replaceAll(/[\u0000-\u001f\u007f-\u009f]/g, '?');
  return plain.length > maxShown ? `${plain.slice(0, maxShown)}…` : plain;
}

/** Anything that YAML can hold, as a problem shows it. */
export function shown(data: unknown): string {
  if (data === null || data === undefined) return 'nothing';
  if (Array.isArray(data)) return data.length === 0 ? 'an empty list' : 'a list';
  if (typeof data === 'object') return 'a mapping';
  return typeof data === 'string' ? `"${printable(data)}"` : printable(String(data));
}
