/** Formats tables for a terminal. */

const COLOURS = { red: 31, green: 32, yellow: 33, dim: 2, bold: 1 } as const;

type Colour = keyof typeof COLOURS;
export type Paint = (text: string, colour: Colour) => string;

/** Returns text styles for a stream: colored on a terminal, plain in a pipe or if NO_COLOR is set. */
export function painter(stream: { isTTY?: boolean }, environment: NodeJS.ProcessEnv): Paint {
  const coloured = stream.isTTY === true && !environment.NO_COLOR && environment.TERM !== 'dumb';
  return coloured ? (text, colour) => `\u001b[${COLOURS[colour]}m${text}\u001b[0m` : (text) => text;
}

/** Returns the width of the terminal, or 80 in a pipe. */
export function widthOf(stream: { isTTY?: boolean; columns?: number }): number {
  return stream.isTTY && stream.columns ? Math.max(40, stream.columns) : 80;
}

/** Truncates text to a width and marks the truncation. */
export function cut(text: string, width: number): string {
  return text.length <= width ? text : `${text.slice(0, Math.max(0, width - 1))}…`;
}

/** Wraps text into lines of at most `width` characters. */
export function wrapped(text: string, width: number): string[] {
  const lines: string[] = [];
  let line = '';
  for (const word of text.split(' ')) {
    if (line !== '' && line.length + 1 + word.length > width) {
      lines.push(line);
      line = word;
    } else line = line === '' ? word : `${line} ${word}`;
  }
  return [...lines, line];
}

/** Wraps text to the terminal width and keeps the indentation of each line. Unchanged if not on a terminal. */
export function fitted(text: string, stream: { isTTY?: boolean; columns?: number }): string {
  if (!stream.isTTY) return text;
  const width = widthOf(stream);
  return text
    .split('\n')
    .flatMap((line) => {
      const indent = /^ */.exec(line)![0];
      return wrapped(line.slice(indent.length), width - indent.length).map((part) => `${indent}${part}`);
    })
    .join('\n');
}

/** Width below which cells are stacked instead of truncated. */
const NARROW = 60;

/**
 * Formats columns with their natural width, two spaces apart and without trailing spaces. Truncates at `width` if set.
 * On a narrow terminal, a row that does not fit becomes a block with one cell per line, labeled with the header. With
 * two columns, the second one is wrapped.
 */
export function table(rows: readonly (readonly string[])[], width = narrowWidth()): string {
  const widths = (rows[0] ?? []).map((_, i) => Math.max(...rows.map((row) => row[i]?.length ?? 0)));
  const whole = widths.reduce((sum, one) => sum + one + 2, -2);
  if (whole > width && width < NARROW)
    return widths.length > 2 ? blocks(rows, width) : pairs(rows, widths[0] ?? 0, width);
  return rows
    .map((row) => {
      const line = row.map((cell, i) => cell.padEnd(widths[i] ?? 0)).join('  ');
      return cut(line.trimEnd(), width);
    })
    .join('\n');
}

/** Returns the width of standard output if it is a narrow terminal. Other terminals wrap long lines themselves. */
function narrowWidth(): number {
  const width = process.stdout.isTTY ? widthOf(process.stdout) : Number.POSITIVE_INFINITY;
  return width < NARROW ? width : Number.POSITIVE_INFINITY;
}

function pairs(rows: readonly (readonly string[])[], first: number, width: number): string {
  const indent = first + 2 <= width / 2 ? first + 2 : 2;
  return rows
    .flatMap(([label = '', text = '']) => {
      const lines = wrapped(text, width - indent).map((line) => `${' '.repeat(indent)}${line}`.trimEnd());
      if (label.length > indent - 2) return [cut(label, width), ...(text === '' ? [] : lines)];
      return [`${label.padEnd(indent)}${lines[0]!.slice(indent)}`.trimEnd(), ...lines.slice(1)];
    })
    .join('\n');
}

function blocks([head = [], ...rows]: readonly (readonly string[])[], width: number): string {
  const label = Math.max(...head.map((name) => name.length));
  const block = (row: readonly string[]) =>
    pairs(
      row.flatMap((cell, i) => (cell === '' ? [] : [[head[i] ?? '', cell]])),
      label,
      width,
    );
  return rows.map(block).join('\n\n');
}
