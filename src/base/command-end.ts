import { CommanderError } from 'commander';
import { ConfigurationError, messageOf, TagferryError } from './errors.ts';
import { fitted } from './table.ts';

/** Exit codes (docs/interface.md): 0 success, 1 failure, 2 usage error, 78 configuration error. */
const EXIT_FAILED = 1;
const EXIT_USAGE = 2;
const EXIT_CONFIGURATION = 78;

/**
 * Exits silently if the reader closed the pipe, as `head` does. The agent keeps running if its log has no reader.
 */
export function endWithReader(): void {
  process.stdout.on('error', (error: NodeJS.ErrnoException) => {
    if (error.code === 'EPIPE') process.exit();
    throw error;
  });
}

/**
 * Prints a command's error in a form that is readable on a small screen, and sets the exit code. `spelled` adapts
 * command names to this program.
 */
export function reportError(program: string, error: unknown, spelled = (text: string) => text): void {
  if (error instanceof CommanderError) {
    process.exitCode = error.exitCode === 0 ? 0 : EXIT_USAGE;
    return;
  }
  process.exitCode = exitStatusOf(error);
  // If standard error is not writable, only the exit status reports the problem.
  process.stderr.on('error', () => {});
  if (error instanceof ConfigurationError) {
    process.stderr.write(`${error.problems.join('\n')}\n${error.hint ?? ''}\n`);
    return;
  }
  const hint = error instanceof TagferryError && error.hint ? `\n${error.hint}` : '';
  process.stderr.write(`${fitted(spelled(`${program}: ${messageOf(error)}${hint}`), process.stderr)}\n`);
}

/** Returns the exit code for an error. */
export function exitStatusOf(error: unknown): number {
  if (error instanceof ConfigurationError) return EXIT_CONFIGURATION;
  return error instanceof TagferryError && error.code === 'usage' ? EXIT_USAGE : EXIT_FAILED;
}
