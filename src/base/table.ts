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

/** Columns as wide as they need, two spaces apart; the last one is not filled up. Cut at `width` where one is given. */
export function table(rows: readonly (readonly string[])[], width = Number.POSITIVE_INFINITY): string {
  const widths = (rows[0] ?? []).map((_, i) => Math.max(...rows.map((row) => row[i]?.length ?? 0)));
  return rows
    .map((row) => {
      const line = row.map((cell, i) => cell.padEnd(widths[i] ?? 0)).join('  ');
      return cut(line.trimEnd(), width);
    })
    .join('\n');
}
