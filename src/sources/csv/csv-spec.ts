import type { LoggerTime } from './logger-time.ts';

export const THOUSANDS = ['.', ',', ' ', "'"] as const;
export type Thousands = (typeof THOUSANDS)[number];

/** A folder to which a data logger or another machine writes files. */
export interface CsvSpec {
  folder: string;
  /** File name pattern with `*` and `?`. */
  pattern: string;
  /** Default: the separator used in the header. */
  separator?: string;
  decimal: '.' | ',';
  /** Separator of groups of three digits. A space includes non-breaking ones. */
  thousands?: Thousands;
  /** Encoding label of `TextDecoder`. */
  encoding: string;
  /** Number of lines before the header, or before the first row if there is no header. */
  skipLines: number;
  hasHeader: boolean;
  /** Number of rows below the header that contain units and are skipped. */
  unitsRow?: number;
  /** `long`: each row specifies its tag and key; `wide`: each column is a value. */
  form: 'wide' | 'long';
  /**
   * Names or numbers (from 1) of the columns that contain the time; their texts are joined by a space. If empty, the
   * arrival time is used.
   */
  timeColumns: readonly (string | number)[];
  time: LoggerTime;
  /** Files are read while they grow, including across rotations, and are never moved. */
  tail: boolean;
  /** Time without changes after which a file is considered complete, in milliseconds. */
  settleMs: number;
  /** Retention of files in `done/`, in milliseconds; 0 means no limit. */
  keepMs: number;
}

export interface CsvValue {
  /** Default: the column with the same name as the key. */
  column?: string | number;
}
