/** What verbs ask of the sources at work. */
import { messageOf, TagferryError, UsageError } from '../base/errors.ts';
import type { ScanStep } from '../sources/source-kind.ts';
import type { SourceReport } from '../sources/source-report.ts';
import type { TestedReport } from '../sources/source-test.ts';
import type { ControlRoutes } from './control-server.ts';

export interface SourceRouteParts {
  reports(): SourceReport[];
  /** Reads every value of these sources once, or of all; what comes by itself is waited for. */
  test(names: readonly string[], waitMs: number, signal: AbortSignal): Promise<TestedReport[]>;
  /** What a source offers of what was named. */
  scan(name: string, what: readonly string[], signal: AbortSignal): AsyncIterable<ScanStep>;
}

const DEFAULT_WAIT_MS = 10_000;
const MAX_WAIT_MS = 3_600_000;

export function sourceRoutes(parts: SourceRouteParts): ControlRoutes {
  return {
    'sources/ls': async () => ({ sources: parts.reports() }),
    'sources/test': async ({ sources = [], wait_ms: waitMs = DEFAULT_WAIT_MS }, { signal }) => {
      const names = namesOf('sources', sources);
      if (typeof waitMs !== 'number' || !(waitMs >= 0 && waitMs <= MAX_WAIT_MS)) {
        throw new UsageError('wait_ms is no time of an hour or less');
      }
      return { values: await parts.test(names, waitMs, signal) };
    },
    'sources/scan': async ({ source, what = [] }, { signal, write }) => {
      if (typeof source !== 'string') throw new UsageError('source is no name');
      const steps = parts.scan(source, namesOf('what', what), signal);
      try {
        for await (const step of steps) await write(`${JSON.stringify(step)}\n`);
      } catch (error) {
        if (error instanceof UsageError) throw error;
        // Perhaps in the middle: as a line, for there is no other way to say it.
        const hint = error instanceof TagferryError ? error.hint : undefined;
        await write(`${JSON.stringify({ failed: messageOf(error), hint })}\n`);
      }
    },
  };
}

function namesOf(member: string, value: unknown): string[] {
  if (Array.isArray(value) && value.every((name) => typeof name === 'string')) return value;
  throw new UsageError(`${member} is no list of names`);
}
