/**
 * Configuration problem with its location and suggested correction. Functions in this folder report problems and
 * continue, so that one run of `check` shows all of them.
 */
export interface Problem {
  /** File name, starting with the folder as specified by the user, or `environment`, or `credential <name>`. */
  file: string;
  /** Line number, starting at 1; `null` if there are no lines (environment, folder). */
  line: number | null;
  column: number | null;
  /** Invalid text, masked and truncated; empty if there is no such text or if it is secret. */
  text: string;
  /** Description of the problem. */
  reason: string;
  /** Suggested correction, as an imperative phrase. */
  instead: string;
  severity: 'error' | 'warning';
  /** This user has no read permission. Other users may be able to read the file. */
  accessDenied?: true;
}

export interface Place {
  file: string;
  line: number | null;
  column: number | null;
}

/** Returns the file and line, as in `tags.d/10-line.yaml:3`, or the file if there are no lines. */
export function placeName({ file, line }: Place): string {
  return line === null ? file : `${file}:${line}`;
}

const MAX_SHOWN = 60;

/**
 * Returns `file:line:column: problem, correction`, the format used by compilers, so that editors and terminals can link
 * to the location. If the problem does not contain the invalid text, the text precedes it. Warnings are marked.
 */
export function problemLine(problem: Problem): string {
  const { file, line, column, text, reason, instead } = problem;
  const at = [file, ...(line === null ? [] : [line, column ?? 1])].join(':');
  const mark = problem.severity === 'warning' ? 'warning: ' : '';
  const what = `${reason}, ${instead}`.includes(text) ? '' : `"${text}": `;
  return `${at}: ${mark}${what}${reason}, ${instead}`;
}

/** Problems found in one run, in order. */
export class Problems {
  readonly list: Problem[] = [];

  error(place: Place, reason: string, instead: string, text = ''): void {
    this.#add('error', place, reason, instead, text);
  }

  warning(place: Place, reason: string, instead: string, text = ''): void {
    this.#add('warning', place, reason, instead, text);
  }

  /** Reports an error for the service user, or a warning for other users who run the check. */
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

/** Sorts by file in the order of first appearance, with entries without lines last, then by line and column. */
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

/**
 * Returns text on one line of limited length, without control characters or passwords in addresses. A password may
 * contain an unescaped `@`, so everything up to the last `@` is masked.
 */
export function printable(text: string, maxShown = MAX_SHOWN): string {
  const [start, end] = [text.indexOf('//'), text.lastIndexOf('@')];
  const masked = start >= 0 && end > start ? `${text.slice(0, start)}//***${text.slice(end)}` : text;
  const plain = masked
    // biome-ignore lint/suspicious/noControlCharactersInRegex: control characters must not be sent to a terminal
    .replaceAll(/[\u0000-\u001f\u007f-\u009f]/g, '?');
  return plain.length > maxShown ? `${plain.slice(0, maxShown)}…` : plain;
}

/**
 * Returns an invalid address in printable form. Without an `@`, the part after the last `//` may contain a password if
 * the address cannot be parsed or contains two.
 */
export function printableAddress(text: string): string {
  if (text.includes('@')) return printable(text.replace(/^([a-z][a-z0-9+.-]*:\/\/)?.*@/is, '$1***@'));
  const [first, last] = [text.indexOf('//'), text.lastIndexOf('//')];
  if (first < 0 || (first === last && URL.canParse(text))) return printable(text);
  return printable(`${text.slice(0, last)}//***`);
}

/**
 * Returns the suggested correction of a rejected address: escape sequences if an unescaped character ends the user name
 * or password too early, otherwise `instead`.
 */
export function addressCorrection(text: string, instead: string): string {
  const url = URL.parse(text);
  const isWhole = url !== null && !(url.pathname + url.search + url.hash).includes('@');
  if (isWhole || !text.includes('@')) return instead;
  return 'in a user name or password, write / as %2F, @ as %40, ? as %3F, # as %23, : as %3A and % as %25';
}

/** Formats any YAML value for a problem message. */
export function shown(data: unknown): string {
  if (data === null || data === undefined) return 'nothing';
  if (Array.isArray(data)) return data.length === 0 ? 'an empty list' : 'a list';
  if (typeof data === 'object') return 'a mapping';
  return typeof data === 'string' ? `"${printable(data)}"` : printable(String(data));
}
