/** Control routes for running sources. */
import { messageOf, TagferryError, UsageError } from '../base/errors.ts';
import type { ScanStep } from '../sources/source-kind.ts';
import type { TestedReport } from '../sources/source-test.ts';
import type { SourceReport } from '../sources/status.ts';
import type { ControlRoutes } from './control-server.ts';
import { numberIn, type Params, textIn, textsIn } from './params.ts';

export interface SourceRouteParts {
  reports(): SourceReport[];
  /**
   * Reads each value of the given sources, or of all sources, once. Waits up to `waitMs` for values that a source
   * publishes.
   */
  test(names: readonly string[], waitMs: number, signal: AbortSignal): Promise<TestedReport[]>;
  /**
   * Lists the values that a source offers in the given registers, topics or nodes. Waits up to `waitMs` for values that
   * the source publishes.
   */
  scan(name: string, what: readonly string[], waitMs: number, signal: AbortSignal): AsyncIterable<ScanStep>;
}

const DEFAULT_WAIT_MS = 10_000;
const MAX_WAIT_MS = 3_600_000;

export function sourceRoutes(parts: SourceRouteParts): ControlRoutes {
  return {
    'sources/ls': async () => ({ sources: parts.reports() }),
    'sources/test': async (params, { signal }) => {
      return { values: await parts.test(textsIn(params, 'sources'), waitIn(params), signal) };
    },
    'sources/scan': async (params, { signal, write }) => {
      const source = textIn(params, 'source');
      if (source === undefined) throw new UsageError('source is missing');
      const steps = parts.scan(source, textsIn(params, 'what'), waitIn(params), signal);
      try {
        for await (const step of steps) await write(`${JSON.stringify(step)}\n`);
      } catch (error) {
        if (error instanceof UsageError) throw error;
        // Earlier steps may already have been written, so the failure is also written as a step.
        const hint = error instanceof TagferryError ? error.hint : undefined;
        await write(`${JSON.stringify({ failed: messageOf(error), hint })}\n`);
      }
    },
  };
}

const waitIn = (params: Params) => numberIn(params, 'wait_ms', 0, MAX_WAIT_MS) ?? DEFAULT_WAIT_MS;
