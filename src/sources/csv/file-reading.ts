/**
 * Passes the rows of one file to the gate in batches. Each commit includes the position after its rows, so that a crash
 * neither duplicates nor loses rows.
 */
import { counted } from '../../base/amounts.ts';
import { raced } from '../../base/clock.ts';
import type { Note } from '../../buffer/client/notes.ts';
import { isValidTime } from '../intake/draft.ts';
import type { Gate } from '../intake/gate.ts';
import type { Point } from '../points.ts';
import { FileColumns } from './columns.ts';
import { type Place, type RawRecord, rawRecords } from './csv.ts';
import type { CsvSpec, CsvValue } from './csv-spec.ts';
import type { FolderClient, OpenFile } from './folder-client.ts';
import type { FolderFile } from './folder-protocol.ts';

/** Dependencies for reading files of one source. */
export interface ReadingContext {
  spec: CsvSpec;
  points: readonly Point<CsvValue>[];
  folder: FolderClient;
  gate: Gate;
  signal: AbortSignal;
  /**
   * Returns the note that stores the progress of a file. If `progress` is omitted, the note removes the stored
   * progress.
   */
  noteOf(name: string, progress?: FileProgress): Note;
}

/** Read position of a file, stored with its values. */
export interface FileProgress {
  identity: string;
  /** Size of a complete file. A file with a different size is a different file. */
  size: number;
  mtimeMs: number;
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
  /** All rows were accepted, so the file only has to be moved. */
  isRead?: true;
  /** Hash and length of the first bytes, used to detect whether a growing file was replaced. */
  head?: string;
  headBytes?: number;
}

/** Number of records per event loop turn, and therefore per commit. */
const BATCH_RECORDS = 500;
const CHUNK_BYTES = 64 * 1024;
const MAX_PROBLEMS = 50;

type Readable = Pick<OpenFile, 'read'>;

export function initialProgress({ identity, size, mtimeMs }: Omit<FolderFile, 'name'>): FileProgress {
  return { identity, size, mtimeMs, position: 0, line: 1, rows: 0, values: 0, refused: 0, problems: [] };
}

/** Returns `undefined` for text written in a different format by another agent version. */
export function parseProgress(text: string | undefined): FileProgress | undefined {
  try {
    const found = JSON.parse(text ?? '') as FileProgress;
    return typeof found.position === 'number' && Array.isArray(found.problems) ? found : undefined;
  } catch {
    return undefined;
  }
}

/**
 * Yields the records of a file from a position to `end`. With `isComplete`, also yields a final line without a line
 * feed.
 */
export function fileRecords(file: Readable, from: Place, end: number, encoding: string, isComplete: boolean) {
  return rawRecords(chunksOf(file, from.position, end), { from, encoding, isComplete });
}

async function* chunksOf(file: Readable, from: number, end: number): AsyncGenerator<Uint8Array> {
  for (let at = from; at < end; ) {
    const chunk = await file.read(at, Math.min(CHUNK_BYTES, end - at));
    if (chunk.length === 0) return;
    at += chunk.length;
    yield chunk;
  }
}

interface FileHead {
  /** Header row, or the first data row if the file has no header. */
  first: string;
  /** Rows below the header that contain units. */
  units: string[];
  /** Position of the first data row. */
  rows: Place;
}

/**
 * Returns the head of a file, or `undefined` if the file does not contain all of its lines yet. Throws the same errors
 * as `rawRecords`.
 */
export async function readHead(
  file: Readable,
  spec: CsvSpec,
  end: number,
  isComplete: boolean,
): Promise<FileHead | undefined> {
  const start = { position: 0, line: 1 };
  const { unitsRow = 0 } = spec;
  const units: string[] = [];
  let first: string | undefined;
  for await (const { text, line, startsAt, endsAt } of fileRecords(file, start, end, spec.encoding, isComplete)) {
    if (line <= spec.skipLines || text.trim() === '') continue;
    if (!spec.hasHeader) return { first: text, units, rows: { position: startsAt, line } };
    if (first === undefined) first = text;
    else units.push(text);
    if (units.length === unitsRow) return { first, units, rows: { position: endsAt, line: line + 1 } };
  }
  return undefined;
}

/** Resolves when all accepted rows are on disk. Rejects with the gate's error or with the signal's abort reason. */
export async function committed({ gate, signal }: Pick<ReadingContext, 'gate' | 'signal'>): Promise<void> {
  signal.throwIfAborted();
  await raced(gate.committed(), signal);
}

/**
 * Passes all rows from `progress` to `end` to the gate. With `isComplete`, includes a final row without a line feed.
 * Returns false if the file does not contain a complete first line yet. Waits for the disk only while the gate is full,
 * so that callers can await `committed` once for many files. Rejects with `UnreadableValues`, `FolderFailure`, a store
 * error, or the signal's abort reason.
 */
export async function readRows(
  context: ReadingContext,
  { file, name }: { file: Readable; name: string },
  progress: FileProgress,
  end: number,
  isComplete: boolean,
): Promise<boolean> {
  const { spec, points, gate, signal } = context;
  const head = await readHead(file, spec, end, isComplete);
  if (!head) return false;
  const columns = new FileColumns(spec, points, head.first);
  if (progress.position < head.rows.position) {
    Object.assign(progress, head.rows);
    for (const missing of columns.missing) addProblem(progress, 1, `no column for ${missing}`);
  }
  let batch: RawRecord[] = [];
  const finishBatch = () => {
    for (const { text, line, endsAt } of batch) {
      if (text.trim() !== '') acceptRow(text, line, columns, progress, gate);
      progress.position = endsAt;
      progress.line = line + text.split('\n').length;
    }
    gate.note(context.noteOf(name, progress));
    batch = [];
  };
  const { position, line } = progress;
  for await (const record of fileRecords(file, { position, line }, end, spec.encoding, isComplete)) {
    batch.push(record);
    if (batch.length < BATCH_RECORDS) continue;
    finishBatch();
    if (gate.isFull) await committed(context);
    signal.throwIfAborted();
  }
  if (batch.length > 0) finishBatch();
  if (gate.isFull) await committed(context);
  return true;
}

function acceptRow(text: string, line: number, columns: FileColumns, progress: FileProgress, gate: Gate): void {
  const { timeMs, shift, cells, problem: rowProblem } = columns.read(text, line, progress.afterMs);
  progress.rows++;
  const isAccepted = timeMs === undefined || isValidTime(timeMs);
  if (rowProblem !== undefined || !isAccepted) {
    const problem = rowProblem ?? 'the time must be between 1970 and 9999';
    addProblem(progress, line, problem);
    gate.status.reject(`line ${line}: ${problem}`);
    return;
  }
  if (timeMs !== undefined) progress.afterMs = timeMs;
  if (shift !== undefined) progress[shift] = [progress[shift]?.[0] ?? line, line];
  for (const { point, raw, problem } of cells) {
    if (problem === undefined) {
      gate.accept(point, raw, timeMs);
      progress.values++;
    } else {
      addProblem(progress, line, `${point.name}: ${problem}`);
      gate.recordFailure(point, `line ${line}: ${problem}`);
    }
  }
}

function addProblem(progress: FileProgress, line: number, problem: string): void {
  progress.refused++;
  if (progress.problems.length < MAX_PROBLEMS) progress.problems.push(`line ${line}: ${problem}`);
}

/** Returns the text of the report stored next to a file in `done/` or `failed/`. */
export function reportText(name: string, progress: FileProgress, failure: string | undefined, zone: string): string {
  const { rows, values, refused, problems, twice, skipped } = progress;
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
