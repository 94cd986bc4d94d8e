/** Takes the rows of one file into the gate, batch by batch, each with the place behind it in one commit. */
import type { FileHandle } from 'node:fs/promises';
import type { Note } from '../../buffer/client/notes.ts';
import { isTimeTaken } from '../draft.ts';
import type { Gate } from '../gate.ts';
import type { FileColumns } from './file-columns.ts';
import { type FileProgress, noteOdd, noteProblem } from './file-progress.ts';
import { type FileRecord, fileRecords } from './file-records.ts';
import { committed } from './reading-context.ts';

export interface FileReadingOptions {
  file: FileHandle;
  columns: FileColumns;
  encoding: string;
  /** Is changed as rows are taken. */
  progress: FileProgress;
  /** Read up to here; with `takesRest` a last row without a line feed too. */
  end: number;
  takesRest: boolean;
  gate: Gate;
  /** What is written with each batch. */
  noteOf(progress: FileProgress): Note;
  signal: AbortSignal;
}

const BATCH_RECORDS = 500;

/** Resolves when all of it is on disk. Rejects with `UnreadableValues`, what the disk says, or the signal's reason. */
export async function readRows(options: FileReadingOptions): Promise<void> {
  const { file, encoding, progress, end, takesRest, signal } = options;
  const { position, line } = progress;
  let batch: FileRecord[] = [];
  for await (const record of fileRecords(file, { position, line }, end, encoding, takesRest)) {
    batch.push(record);
    if (batch.length < BATCH_RECORDS) continue;
    await takeBatch(batch, options);
    batch = [];
    signal.throwIfAborted();
  }
  if (batch.length > 0) await takeBatch(batch, options);
}

/** Within one turn of the event loop: the gate writes what it took in one together. */
async function takeBatch(batch: readonly FileRecord[], options: FileReadingOptions): Promise<void> {
  const { columns, progress, gate, noteOf } = options;
  for (const record of batch) {
    if (record.text.trim() !== '') takeRow(record, columns, progress, gate);
    progress.position = record.endsAt;
    progress.line = record.line + record.text.split('\n').length;
  }
  gate.note(noteOf(progress));
  await committed(options);
}

function takeRow({ text, line }: FileRecord, columns: FileColumns, progress: FileProgress, gate: Gate): void {
  const row = columns.read(text, line, progress.afterMs);
  progress.rows++;
  const { timeMs } = row;
  const isTaken = timeMs === undefined || isTimeTaken(timeMs);
  if (row.problem !== undefined || !isTaken) {
    noteProblem(progress, line, row.problem ?? 'its time lies outside of the years 1970 to 9999');
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
      gate.fail(point);
    }
  }
}
