import { format } from 'node:util';
import { plain } from './foreign-text.ts';
import type { Logger } from './logger.ts';

const METHODS = ['log', 'info', 'warn', 'error', 'debug', 'trace'] as const;
const MAX_TEXT = 500;

/**
 * Redirects console output of libraries to the log, as a single line of limited length with escaped control characters.
 * The NATS library prints unparsable server input, which would otherwise appear in the journal as agent log lines.
 */
export function logConsole(log: Logger, printer: Pick<Console, (typeof METHODS)[number]> = console): void {
  for (const method of METHODS) {
    printer[method] = (...said: unknown[]) => {
      const text = plain(format(...said).slice(0, MAX_TEXT));
      log.debug({ event: 'agent.library_said', text }, 'library output');
    };
  }
}
