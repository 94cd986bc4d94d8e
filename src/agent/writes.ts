import type { Clock } from '../base/clock.ts';
import type { Logger } from '../base/logger.ts';
import type { Metrics } from '../ops/metrics.ts';
import { Writer, type WriterOptions } from '../sources/writes/writer.ts';
import type { BufferFlow } from './buffer-flow.ts';

/** Returns the owner of all writes, with its notes in the inbox. */
export function makeWriter({
  buffer: { inbox },
  metrics,
  ...options
}: Pick<WriterOptions, 'isOn' | 'find'> & { buffer: BufferFlow; metrics: Metrics; clock: Clock; log: Logger }): Writer {
  return new Writer({
    ...options,
    notes: { read: (name) => inbox.note(name), set: (name, text) => inbox.setNote(name, text) },
    onOutcome: (outcome) => metrics.writes.inc({ outcome }),
  });
}
