/**
 * Passes the rows of one file to the gate. The values of a chunk and the position after them are committed together, so
 * that a crash neither duplicates nor loses rows.
 */
import { counted } from '../../base/amounts.ts';
import { raced } from '../../base/clock.ts';
import { plain } from '../../base/foreign-text.ts';
import type { Note } from '../../buffer/client/notes.ts';
import type { Gate, Reading } from '../intake/gate.ts';
import { UnreadableValues } from '../intake/problem-list.ts';
import type { Point } from '../points.ts';
import type { SourceStatus } from '../status.ts';
import { type CsvSpec, type CsvValue, FileColumns, FileHead } from './columns.ts';
import { CsvReader, type CsvRecord, recordsOf } from './csv.ts';
import type { FolderFile } from './folder.ts';

/** Progress of reading a file, stored with its values. */
export interface FileProgress extends FolderFile {
  /** Offset after the last accepted record; `line` is the line number of the next record. */
  position: number;
  line: number;
  rows: number;
  values: number;
  refused: number;
  /** First problems of rejected rows. */
  problems: string[];
  /** Time of the last row. */
  afterMs?: number;
  /** First and last lines with ambiguous (`twice`) or non-existent (`skipped`) local times. */
  twice?: [number, number];
  skipped?: [number, number];
  /** Whether all rows have been read, so that only the move remains. */
  isRead?: true;
  /** Problem that ended the reading of the file. */
  failure?: string;
  /** Hash and length of the first bytes, used to detect whether a growing file was replaced. */
  head?: string;
  headBytes?: number;
}

export interface OpenFile {
  progress: FileProgress;
  /** Resolves when all accepted rows are on disk. */
  stored?: Promise<void>;
  /** Set once the head has been read. */
  columns?: FileColumns | undefined;
}

export interface RowsContext {
  spec: CsvSpec;
  points: readonly Point<CsvValue>[];
  gate: Gate;
  signal: AbortSignal;
  noteOf(progress: FileProgress): Note;
}

/** Reads the bytes of a file from a position to its end. */
export type ReadBytes = (position: number) => AsyncIterable<Uint8Array>;

const MAX_PROBLEMS = 50;

export function initialProgress({ name, identity, size, mtimeMs }: FolderFile): FileProgress {
  return { name, identity, size, mtimeMs, position: 0, line: 1, rows: 0, values: 0, refused: 0, problems: [] };
}

/** Returns `undefined` for text written in a different format by another agent version. */
export function parseProgress(text: string): FileProgress | undefined {
  try {
    const found = JSON.parse(text) as FileProgress;
    const isValid =
      typeof found.name === 'string' && typeof found.position === 'number' && Array.isArray(found.problems);
    return isValid ? found : undefined;
  } catch {
    return undefined;
  }
}

/**
 * Passes all rows from the position to the end to the gate. With `isComplete`, includes a final row without a line feed.
 * Reads no further while the gate is full. Rejects with `UnreadableValues`, the error of `read`, or the signal's abort
 * reason.
 */
export async function readRows(
  context: RowsContext,
  file: OpenFile,
  read: ReadBytes,
  isComplete: boolean,
): Promise<void> {
  const { spec, points, gate, signal } = context;
  const { progress } = file;
  const { position, line } = progress;
  if (position > 0) file.columns ??= await readColumns(context, read(0));
  const { separator = spec.separator } = file.columns ?? {};
  const reader = new CsvReader({ ...spec, separator, position, line });
  const head = new FileHead(spec);
  const accept = (chunk?: Uint8Array) => {
    const readings: Reading[] = [];
    // All records of a chunk are split before the first one is accepted, because an error rejects the whole chunk.
    for (const record of [...reader.read(chunk)]) {
      if (file.columns === undefined) {
        if (!head.add(record)) continue;
        file.columns = new FileColumns(spec, points, head, reader.separator);
        for (const missing of file.columns.missing) addProblem(progress, 1, `no column for ${missing}`);
        if (spec.hasHeader) continue;
      }
      readings.push(...readingsOf(record, file.columns, progress, gate.status));
    }
    // If the head is incomplete, the next read starts at the beginning of the file.
    if (file.columns === undefined) return;
    progress.position = reader.position;
    progress.line = reader.line;
    file.stored = gate.write(readings, [context.noteOf(progress)]);
  };
  for await (const chunk of read(position)) {
    accept(chunk);
    signal.throwIfAborted();
    if (gate.isFull) await raced(gate.untilRoom(), signal);
  }
  if (isComplete) accept();
}

async function readColumns({ spec, points }: RowsContext, bytes: AsyncIterable<Uint8Array>): Promise<FileColumns> {
  const reader = new CsvReader(spec);
  const head = new FileHead(spec);
  for await (const record of recordsOf(bytes, reader)) {
    if (head.add(record)) return new FileColumns(spec, points, head, reader.separator);
  }
  throw new UnreadableValues('the file has no header');
}

function readingsOf(record: CsvRecord, columns: FileColumns, progress: FileProgress, status: SourceStatus): Reading[] {
  const { line } = record;
  const { timeMs, shift, cells, problem: rowProblem } = columns.read(record, progress.afterMs);
  progress.rows++;
  if (rowProblem !== undefined) {
    addProblem(progress, line, rowProblem);
    status.reject(plain(`${progress.name}: line ${line}: ${rowProblem}`));
    return [];
  }
  if (timeMs !== undefined) progress.afterMs = timeMs;
  if (shift !== undefined) progress[shift] = [progress[shift]?.[0] ?? line, line];
  return cells.map((cell) => {
    if ('raw' in cell) {
      progress.values++;
      return { point: cell.point, raw: cell.raw, timeMs };
    }
    addProblem(progress, line, `${cell.point.name}: ${cell.problem}`);
    return { point: cell.point, failure: plain(`line ${line}: ${cell.problem}`) };
  });
}

function addProblem(progress: FileProgress, line: number, problem: string): void {
  progress.refused++;
  if (progress.problems.length < MAX_PROBLEMS) progress.problems.push(`line ${line}: ${problem}`);
}

/** Returns the text of the report stored next to a file in `done/` or `failed/`. */
export function reportText(progress: FileProgress, zone: string): string {
  const { name, rows, values, refused, problems, twice, skipped, failure } = progress;
  const lines = [
    `${name}: ${counted(values, 'value')} of ${counted(rows, 'row', 'was', 'were')} stored, ${refused} rejected.`,
  ];
  if (failure !== undefined) lines.push(`Reading stopped: ${failure}`);
  if (twice) {
    lines.push(`Lines ${twice.join(' to ')}: an hour that occurred twice in ${zone}; times assigned in file order.`);
  }
  if (skipped) {
    lines.push(`Lines ${skipped.join(' to ')}: an hour skipped in ${zone}; times assigned as before the clock change.`);
  }
  lines.push(...problems);
  if (refused > problems.length) lines.push(`… and ${refused - problems.length} more.`);
  return `${lines.join('\n')}\n`;
}
