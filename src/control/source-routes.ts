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
  /** What a source offers of what was named; what comes by itself is waited for. */
  scan(name: string, what: readonly string[], waitMs: number, signal: AbortSignal): AsyncIterable<ScanStep>;
}

const DEFAULT_WAIT_MS = 10_000;
const MAX_WAIT_MS = 3_600_000;

export function sourceRoutes(parts: SourceRouteParts): ControlRoutes {
  return {
    'sources/ls': async () => ({ sources: parts.reports() }),
    'sources/test': async ({ sources = [], wait_ms }, { signal }) => {
      return { values: await parts.test(namesOf('sources', sources), waitOf(wait_ms), signal) };
    },
    'sources/scan': async ({ source, what = [], wait_ms }, { signal, write }) => {
      if (typeof source !== 'string') throw new UsageError('source is no name');
      const steps = parts.scan(source, namesOf('what', what), waitOf(wait_ms), signal);
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

function waitOf(waitMs: unknown = DEFAULT_WAIT_MS): number {
  if (typeof waitMs === 'number' && waitMs >= 0 && waitMs <= MAX_WAIT_MS) return waitMs;
  throw new UsageError('wait_ms is no time of an hour or less');
}

function namesOf(member: string, value: unknown): string[] {
  if (Array.isArray(value) && value.every((name) => typeof name === 'string')) return value;
  throw new UsageError(`${member} is no list of names`);
}
