import { createInterface } from 'node:readline/promises';
import { UsageError } from '../base/errors.ts';

/**
 * Asks before something is taken away; only `y` or `yes` is a yes. Where nobody can answer it throws: a script says --yes.
 */
export async function confirm(question: string, yes: boolean | undefined): Promise<boolean> {
  if (yes) return true;
  if (!process.stdin.isTTY)
    throw new UsageError(`${question} Nobody is here to answer`, 'Add --yes where you are sure.');
  const answer = await ask(`${question} [y/N] `);
  return /^y(es)?$/i.test(answer.trim());
}

/** One line from the terminal; the question goes to standard error, so that standard output stays data. */
async function ask(question: string): Promise<string> {
  const reader = createInterface({ input: process.stdin, output: process.stderr });
  try {
    return await reader.question(question);
  } finally {
    reader.close();
  }
}
