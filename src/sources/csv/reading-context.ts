import type { Note } from '../../buffer/client/notes.ts';
import type { Gate } from '../gate.ts';
import type { Point } from '../points.ts';
import type { CsvSpec, CsvValue } from './csv-spec.ts';
import type { FileProgress } from './file-progress.ts';

/** What whoever reads a file of a source needs of it. */
export interface ReadingContext {
  spec: CsvSpec;
  points: readonly Point<CsvValue>[];
  gate: Gate;
  signal: AbortSignal;
  /** Without `progress`: the file is forgotten. */
  noteOf(name: string, progress?: FileProgress): Note;
  /** Rows of a file could not be taken. */
  sayRefused(name: string, progress: FileProgress, refused: number): void;
  /** A file that grows became shorter, or another one: it is read from its beginning. */
  sayCut(name: string, progress: FileProgress): void;
}

/** Resolves when what was taken in this turn is on disk. Rejects as the gate does, or with the reason of the signal: the gate goes on by itself. */
export async function committed({ gate, signal }: Pick<ReadingContext, 'gate' | 'signal'>): Promise<void> {
  signal.throwIfAborted();
  const stop = Promise.withResolvers<never>();
  const onAbort = () => stop.reject(signal.reason);
  signal.addEventListener('abort', onAbort, { once: true });
  try {
    await Promise.race([gate.committed(), stop.promise]);
  } finally {
    signal.removeEventListener('abort', onAbort);
  }
}
