import { CommanderError } from 'commander';
import { ConfigurationError, messageOf, TagferryError } from './errors.ts';
import { fitted } from './table.ts';

/** Exit statuses of docs/interface.md: 0 done, 1 failed, 2 wrong usage, 78 configuration wrong. */
const EXIT_FAILED = 1;
const EXIT_USAGE = 2;
const EXIT_CONFIGURATION = 78;

/** `… | head`: whoever read has seen enough, and that is no fault. The daemon goes on without a reader of its log. */
export function endWithReader(): void {
  process.stdout.on('error', (error: NodeJS.ErrnoException) => {
    if (error.code === 'EPIPE') process.exit();
    throw error;
  });
}

/** Says what went wrong with a command, as one who reads it on a phone needs it, and sets the exit status. `spelled` puts its words as this program has them. */
export function reportError(program: string, error: unknown, spelled = (text: string) => text): void {
  if (error instanceof CommanderError) {
    process.exitCode = error.exitCode === 0 ? 0 : EXIT_USAGE;
    return;
  }
  process.exitCode = exitStatusOf(error);
  if (error instanceof ConfigurationError) {
    process.stderr.write(`${error.problems.join('\n')}\n${error.hint ?? ''}\n`);
    return;
  }
  const hint = error instanceof TagferryError && error.hint ? `\n${error.hint}` : '';
  process.stderr.write(`${fitted(spelled(`${program}: ${messageOf(error)}${hint}`), process.stderr)}\n`);
}

/** Returns the exit status of a command that ends with the error. */
export function exitStatusOf(error: unknown): number {
  if (error instanceof ConfigurationError) return EXIT_CONFIGURATION;
  return error instanceof TagferryError && error.code === 'usage' ? EXIT_USAGE : EXIT_FAILED;
}
