import { format } from 'node:util';
import { plain } from './foreign-text.ts';
import type { Logger } from './logger.ts';

const METHODS = ['log', 'info', 'warn', 'error', 'debug', 'trace'] as const;
const MAX_TEXT = 500;

/**
 * What libraries print goes into the log, on one line, bounded and visible. One of NATS prints what a server said that it does not
 * understand: as it came it would stand in the journal as lines of ours.
 */
export function logConsole(log: Logger, printer: Pick<Console, (typeof METHODS)[number]> = console): void {
  for (const method of METHODS) {
    printer[method] = (...said: unknown[]) => {
      const text = plain(format(...said).slice(0, MAX_TEXT));
      log.debug({ event: 'agent.library_said', text }, 'a library printed something');
    };
  }
}
