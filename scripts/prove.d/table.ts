import type { Verdict } from '../../test/prove/oracle.ts';

const number = new Intl.NumberFormat('en');

/** Formats a Markdown table. */
export function table(head: readonly string[], rows: readonly (readonly (string | number)[])[]): string {
  const line = (cells: readonly (string | number)[]) =>
    `| ${cells.map((cell) => (typeof cell === 'number' ? number.format(cell) : cell)).join(' | ')} |`;
  return [line(head), `|${'---|'.repeat(head.length)}`, ...rows.map(line)].join('\n');
}

/** Columns for every result. */
export const judgedHead = ['acknowledged', 'missing', 'invented', 'different', 'duplicates'] as const;
export const judgedRow = (verdict: Verdict) => [
  verdict.acknowledged,
  verdict.missing,
  verdict.invented,
  verdict.different,
  verdict.repeated,
];
