/** Rows for a terminal. */

const COLOURS = { red: 31, green: 32, yellow: 33, dim: 2, bold: 1 } as const;

type Colour = keyof typeof COLOURS;
export type Paint = (text: string, colour: Colour) => string;

/** How text may look on a stream: coloured on a terminal, plain when piped or where NO_COLOR is set. */
export function painter(stream: { isTTY?: boolean }, environment: NodeJS.ProcessEnv): Paint {
  const coloured = stream.isTTY === true && !environment.NO_COLOR && environment.TERM !== 'dumb';
  return coloured ? (text, colour) => `\u001b[${COLOURS[colour]}m${text}\u001b[0m` : (text) => text;
}

/** Width to write for: the terminal's, 80 when piped. */
export function widthOf(stream: { isTTY?: boolean; columns?: number }): number {
  return stream.isTTY && stream.columns ? Math.max(40, stream.columns) : 80;
}

/** Cut at a width, with a mark that it was. */
export function cut(text: string, width: number): string {
  return text.length <= width ? text : `${text.slice(0, Math.max(0, width - 1))}…`;
}

/** Words over as many lines as they need, each at most `width` long. */
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

/** A text whose lines fit the terminal, each going on under its own indentation; as it is where nobody's terminal is. */
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

/** Narrower than this, what does not fit is not cut: its cells stand below each other. */
const NARROW = 60;

/**
 * Columns as wide as they need, two spaces apart; the last one is not filled up. Cut at `width` where one is given. On a narrow terminal a
 * row that does not fit becomes a block, its cells under each other by the names of the first row; of two columns the second is wrapped.
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

/** Of standard output where it is a narrow terminal; what is wider may break lines as it does. */
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
