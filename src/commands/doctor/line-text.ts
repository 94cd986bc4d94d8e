import { plain } from '../../base/foreign-text.ts';
import { painter, widthOf, wrapped } from '../../base/table.ts';
import type { CheckLine } from './finding.ts';

const COLOUR = { ok: 'green', warning: 'yellow', failure: 'red' } as const;
const NAME_WIDTH = 24;

/** A line of the doctor's for a terminal or a pipe. */
export function lineText({ state, check, message, next }: CheckLine): string {
  const paint = painter(process.stdout, process.env);
  const indent = ' '.repeat(9 + NAME_WIDTH);
  // In a pipe a line stays a line, for grep.
  const width = process.stdout.isTTY ? widthOf(process.stdout) - indent.length : Number.POSITIVE_INFINITY;
  const lines = wrapped(plain(message), width);
  if (next !== '') lines.push(...wrapped(`next: ${next}`, width));
  return `${paint(state.padEnd(8), COLOUR[state])} ${check.padEnd(NAME_WIDTH)}${lines.join(`\n${indent}`)}`;
}
