import type { Verdict } from '../../test/prove/oracle.ts';

const number = new Intl.NumberFormat('en');

/** In Markdown. */
export function table(head: readonly string[], rows: readonly (readonly (string | number)[])[]): string {
  const line = (cells: readonly (string | number)[]) =>
    `| ${cells.map((cell) => (typeof cell === 'number' ? number.format(cell) : cell)).join(' | ')} |`;
  return [line(head), `|${'---|'.repeat(head.length)}`, ...rows.map(line)].join('\n');
}

/** What every judged run says, in columns. */
export const judgedHead = ['acknowledged', 'missing', 'invented', 'different', 'came again'] as const;
export const judgedRow = (verdict: Verdict) => [
  verdict.acknowledged,
  verdict.missing,
  verdict.invented,
  verdict.different,
  verdict.repeated,
];
