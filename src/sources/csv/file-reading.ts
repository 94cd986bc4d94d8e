/** Reads the rows of one file into the gate, in batches, each with the position behind it in the same commit. */
import type { Note } from '../../buffer/client/notes.ts';
import { isTimeTaken } from '../draft.ts';
import type { Gate } from '../gate.ts';
import type { Point } from '../points.ts';
import type { CsvSpec, CsvValue } from './csv-spec.ts';
import type { FileColumns } from './file-columns.ts';
import { type FileProgress, noteOdd, noteProblem } from './file-progress.ts';
import { type FileRecord, fileRecords, type Place } from './file-records.ts';
import type { FolderClient, OpenFile } from './folder-client.ts';

/** What reading the files of one source requires. */
export interface ReadingContext {
  spec: CsvSpec;
  points: readonly Point<CsvValue>[];
  folder: FolderClient;
  gate: Gate;
  signal: AbortSignal;
  /** Without `progress`, the file is forgotten. */
  noteOf(name: string, progress?: FileProgress): Note;
}

export interface FileHead {
  /** The header, or the first row of a file without one. */
  first: string;
  /** Position of the first row. */
  rows: Place;
}

/** Records that share one turn of the event loop, and so one commit. */
const BATCH_RECORDS = 500;

/** `undefined` if the file has no complete first line yet. Throws `UnreadableValues` as `fileRecords` does. */
export async function headOf(
  file: Pick<OpenFile, 'read'>,
  { encoding, skipLines, hasHeader }: CsvSpec,
  end: number,
  takesRest: boolean,
): Promise<FileHead | undefined> {
  const start = { position: 0, line: 1 };
  for await (const { text, line, startsAt, endsAt } of fileRecords(file, start, end, encoding, takesRest)) {
    if (line <= skipLines || text.trim() === '') continue;
    const rows = hasHeader ? { position: endsAt, line: line + 1 } : { position: startsAt, line };
    return { first: text, rows };
  }
  return undefined;
}

/** Resolves when all that was read until now is on disk. Rejects as the gate does, or with the reason of the signal. */
export async function committed({ gate, signal }: Pick<ReadingContext, 'gate' | 'signal'>): Promise<void> {
  signal.throwIfAborted();
  const stop = Promise.withResolvers<never>();
  const onAbort = () => stop.reject(signal.reason);
  signal.addEventListener('abort', onAbort, { once: true });
  try {
    await Promise.race([gate.settled(), stop.promise]);
  } finally {
    signal.removeEventListener('abort', onAbort);
  }
}

/**
 * Hands all rows from `progress` to `end` to the gate; with `takesRest` a last row without a line feed too. Waits for the disk only while the
 * gate is full: the caller awaits `committed` for as many files as it likes. Rejects with `UnreadableValues`, `FolderFailure`,
 * an error of the store, or the reason of the signal.
 */
export async function readRows(
  context: ReadingContext,
  { file, columns, name }: { file: Pick<OpenFile, 'read'>; columns: FileColumns; name: string },
  progress: FileProgress,
  end: number,
  takesRest: boolean,
): Promise<void> {
  const { spec, gate, signal } = context;
  const { position, line } = progress;
  let batch: FileRecord[] = [];
  const finishBatch = () => {
    for (const record of batch) {
      if (record.text.trim() !== '') takeRow(record, columns, progress, gate);
      progress.position = record.endsAt;
      progress.line = record.line + record.text.split('\n').length;
    }
    gate.note(context.noteOf(name, progress));
    batch = [];
  };
  for await (const record of fileRecords(file, { position, line }, end, spec.encoding, takesRest)) {
    batch.push(record);
    if (batch.length < BATCH_RECORDS) continue;
    finishBatch();
    if (gate.isFull) await committed(context);
    signal.throwIfAborted();
  }
  if (batch.length > 0) finishBatch();
  if (gate.isFull) await committed(context);
}

function takeRow({ text, line }: FileRecord, columns: FileColumns, progress: FileProgress, gate: Gate): void {
  const row = columns.read(text, line, progress.afterMs);
  progress.rows++;
  const { timeMs } = row;
  const isTaken = timeMs === undefined || isTimeTaken(timeMs);
  if (row.problem !== undefined || !isTaken) {
    const problem = row.problem ?? 'its time lies outside of the years 1970 to 9999';
    noteProblem(progress, line, problem);
    gate.arrivals.reject(`line ${line}: ${problem}`);
    return;
  }
  if (timeMs !== undefined) progress.afterMs = timeMs;
  if (row.odd !== undefined) noteOdd(progress, line, row.odd);
  for (const { point, raw, problem } of row.cells) {
    if (problem === undefined) {
      gate.take(point, raw, timeMs);
      progress.values++;
    } else {
      noteProblem(progress, line, `${point.name}: ${problem}`);
      gate.fail(point, `line ${line}: ${problem}`);
    }
  }
}
