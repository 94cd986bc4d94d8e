import type { LoggerTime } from './logger-time.ts';

/** A folder of files that a data logger or a share fills. */
export interface CsvSpec {
  folder: string;
  /** `*` and `?` of a file's name. */
  pattern: string;
  /** Left out: what the header uses. */
  separator?: string;
  decimal: '.' | ',';
  /** As `TextDecoder` knows it. */
  encoding: string;
  /** Lines before the header, or before the first row where there is none. */
  skipLines: number;
  hasHeader: boolean;
  /** `long`: each row names its tag and key; `wide`: each column is a value. */
  form: 'wide' | 'long';
  /** Names or numbers (from 1); several are joined by a space. None: the time of arrival. */
  timeColumns: readonly (string | number)[];
  time: LoggerTime;
  /** Files that grow: read as they grow, and through their rotation; never moved. */
  tail: boolean;
  /** A file that did not change for so long is complete. */
  settleMs: number;
  /** How long files stay in `done/`; 0 is for ever. */
  keepMs: number;
}

export interface CsvValue {
  /** Left out: the one that is named as the value's key. */
  column?: string | number;
}
