import type { FileHandle } from 'node:fs/promises';
import type { CsvSpec } from './csv-spec.ts';
import { fileRecords, type Place } from './file-records.ts';

export interface FileHead {
  /** The header, or the first row where there is none. */
  first: string;
  /** Where the rows begin. */
  rows: Place;
}

/** `undefined` where the file has no whole first line yet. Throws `UnreadableValues` as `fileRecords` does. */
export async function headOf(
  file: FileHandle,
  spec: CsvSpec,
  end: number,
  takesRest: boolean,
): Promise<FileHead | undefined> {
  const { encoding, skipLines, hasHeader } = spec;
  for await (const { text, line, startsAt, endsAt } of fileRecords(
    file,
    { position: 0, line: 1 },
    end,
    encoding,
    takesRest,
  )) {
    if (line <= skipLines || text.trim() === '') continue;
    const rows = hasHeader ? { position: endsAt, line: line + 1 } : { position: startsAt, line };
    return { first: text, rows };
  }
  return undefined;
}
