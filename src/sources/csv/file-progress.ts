/** How far a file was read: written in the commit that carries its values, so that a crash neither doubles nor loses a row. */
import { counted } from '../../base/amounts.ts';
import type { FolderFile } from './folder-protocol.ts';

export interface FileProgress {
  identity: string;
  /** Of a file that does not grow: one that was written anew is another one. */
  size: number;
  mtimeMs: number;
  /** Behind the last record that was taken; `line` is that of the next one. */
  position: number;
  line: number;
  rows: number;
  values: number;
  refused: number;
  /** The first of what could not be taken. */
  problems: string[];
  /** The moment of the last row. */
  afterMs?: number;
  /** First and last line of hours that came twice, or not at all. */
  twice?: [number, number];
  skipped?: [number, number];
  /** All of it was taken; it is only to be moved. */
  isRead?: true;
  /** Hash of its first bytes, and how many: whether a file that grows is still the same. */
  head?: string;
  headBytes?: number;
}

const MAX_PROBLEMS = 50;

export function freshProgress({ identity, size, mtimeMs }: Omit<FolderFile, 'name'>): FileProgress {
  return { identity, size, mtimeMs, position: 0, line: 1, rows: 0, values: 0, refused: 0, problems: [] };
}

/** `undefined` where the text is none, of an agent that wrote it otherwise. */
export function parseProgress(text: string | undefined): FileProgress | undefined {
  try {
    const found = JSON.parse(text ?? '') as FileProgress;
    return typeof found.position === 'number' && Array.isArray(found.problems) ? found : undefined;
  } catch {
    return undefined;
  }
}

export function noteProblem(progress: FileProgress, line: number, problem: string): void {
  progress.refused++;
  if (progress.problems.length < MAX_PROBLEMS) progress.problems.push(`line ${line}: ${problem}`);
}

export function noteOdd(progress: FileProgress, line: number, odd: 'twice' | 'skipped'): void {
  progress[odd] = [progress[odd]?.[0] ?? line, line];
}

/** What stands beside a file in `done/` or `failed/`. */
export function reportText(name: string, progress: FileProgress, failure: string | undefined, zone: string): string {
  const { rows, values, refused, problems, twice, skipped } = progress;
  const lines = [
    `${name}: ${counted(values, 'value')} of ${counted(rows, 'row', 'was', 'were')} taken, ${refused} could not be.`,
  ];
  if (failure !== undefined) lines.push(`It could not be read on: ${failure}`);
  if (twice) {
    lines.push(`Lines ${twice.join(' to ')}: an hour that came twice in ${zone}; taken in the order of the file.`);
  }
  if (skipped) {
    lines.push(
      `Lines ${skipped.join(' to ')}: an hour that did not come in ${zone}; taken as if the clock had not been put forward.`,
    );
  }
  lines.push(...problems);
  if (refused > problems.length) lines.push(`… and ${refused - problems.length} more.`);
  return `${lines.join('\n')}\n`;
}
