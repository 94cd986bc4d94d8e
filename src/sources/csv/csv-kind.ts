import { readDuration } from '../../base/quantity.ts';
import { DURATION_SCHEMA } from '../../config/duration-schema.ts';
import { printable } from '../../config/problem.ts';
import type { MemberReport, Members } from '../../config/source-kinds.ts';
import { formatProblem } from '../intake/logger-time.ts';
import type { SourceKind } from '../source-kind.ts';
import type { CsvSpec, CsvValue, Thousands } from './columns.ts';

const SETTLE = '10s';
const KEEP = '30d';
const FLAG = { type: 'boolean', title: 'true or false' };
const OTHER_ENCODINGS = Object.fromEntries(
  ['ansi', 'cp1252', 'iso-8859-1', 'iso-8859-15', 'latin1'].map((name) => [name, 'windows-1252']),
);
const COLUMN = {
  type: ['string', 'integer'],
  minLength: 1,
  maxLength: 256,
  minimum: 1,
  maximum: 10_000,
  title: 'the name or number of a column',
};

/** Files from a data logger or on a share: `drop: { csv: /srv/tagferry/in, separator: ";", decimal: "," }`. */
export const CSV: SourceKind<CsvSpec, CsvValue> = {
  kind: 'csv',
  example: 'csv: /srv/tagferry/in',
  sourceMembers: {
    csv: {
      type: 'string',
      minLength: 1,
      title: 'a folder',
      description: 'CSV: folder with the files.',
      examples: ['/srv/tagferry/in'],
    },
    pattern: {
      type: 'string',
      minLength: 1,
      maxLength: 256,
      default: '*.csv',
      title: 'a file name pattern',
      description: 'CSV: file name pattern with the wildcards * and ?.',
      examples: ['*.csv'],
    },
    form: {
      enum: ['wide', 'long'],
      default: 'wide',
      description: 'CSV: one column per value (wide), or one value per row with columns tag and key (long).',
    },
    separator: {
      enum: [',', ';', '\t', '|'],
      description: 'CSV: field separator. Default: detected in the first line.',
    },
    decimal: { enum: ['.', ','], default: '.', description: 'CSV: decimal separator.' },
    thousands: {
      enum: ['.', ',', ' ', "'"],
      description: 'CSV: thousands separator: a point, comma, space or apostrophe. Default: none.',
    },
    encoding: {
      enum: ['utf-8', 'windows-1252', 'utf-16le', 'utf-16be'],
      otherNames: OTHER_ENCODINGS,
      default: 'utf-8',
      description: 'CSV: file encoding.',
    },
    header: { ...FLAG, default: true, description: 'CSV: whether the first line contains the column names.' },
    skip_lines: {
      type: 'integer',
      minimum: 0,
      maximum: 1_000,
      default: 0,
      title: 'a number of lines',
      description: 'CSV: number of lines to skip before the header.',
    },
    units_row: {
      type: 'integer',
      minimum: 1,
      maximum: 10,
      title: 'a number of rows from 1 to 10',
      description: 'CSV: row below the header that contains the units; this row and those above it are skipped.',
      examples: [1],
    },
    time_column: {
      ...COLUMN,
      type: [...COLUMN.type, 'array'],
      minItems: 1,
      maxItems: 4,
      items: COLUMN,
      title: 'a time column, or a list of them',
      description: 'CSV: time column; several columns are joined with a space. Default: arrival time.',
      examples: ['Zeit'],
    },
    time_format: {
      type: 'string',
      minLength: 1,
      maxLength: 64,
      title: 'a time format',
      description:
        'CSV: time format made of YYYY MM DD HH mm ss SSS, hh and A, MMM for the month name; or unix, unix_ms, excel. Default: ISO 8601 or DD.MM.YYYY HH:mm:ss.',
      examples: ['MM/DD/YYYY hh:mm:ss A'],
    },
    zone: {
      type: 'string',
      minLength: 1,
      maxLength: 64,
      default: 'UTC',
      title: 'a time zone',
      description: 'CSV: time zone for times without an offset.',
      examples: ['Europe/Berlin'],
    },
    tail: {
      ...FLAG,
      default: false,
      description: 'CSV: read files while they grow, across rotations, without moving them.',
    },
    last_line: {
      enum: ['skip', 'take'],
      default: 'skip',
      description: 'CSV: whether a last line without a line ending is read, although it may be incomplete.',
    },
    settle: {
      ...DURATION_SCHEMA,
      description: `CSV: time without changes after which a file is complete. Default: ${SETTLE}.`,
    },
    keep: {
      ...DURATION_SCHEMA,
      description: `CSV: retention period for files in done/; 0 keeps them forever. Default: ${KEEP}.`,
    },
  },
  valueMembers: {
    column: {
      ...COLUMN,
      description: 'CSV: value column. Default: the column with the same name as the key.',
      examples: ['Durchfluss', 3],
    },
  },
  readSource(raw: Members, report) {
    const settleMs = readTime('settle', raw.settle ?? SETTLE, report);
    const keepMs = readTime('keep', raw.keep ?? KEEP, report);
    const time = readFormat(raw.time_format as string | undefined, String(raw.zone ?? 'UTC'), report);
    if (settleMs === undefined || keepMs === undefined || time === undefined) return undefined;
    const spec: CsvSpec = {
      folder: report.pathOf(String(raw.csv)),
      pattern: String(raw.pattern ?? '*.csv'),
      separator: raw.separator as string | undefined,
      decimal: (raw.decimal ?? '.') as CsvSpec['decimal'],
      thousands: raw.thousands as Thousands | undefined,
      encoding: String(raw.encoding ?? 'utf-8'),
      skipLines: Number(raw.skip_lines ?? 0),
      hasHeader: raw.header !== false,
      unitsRow: Number(raw.units_row ?? 0),
      form: (raw.form ?? 'wide') as CsvSpec['form'],
      timeColumns: raw.time_column === undefined ? [] : ([raw.time_column].flat() as (string | number)[]),
      time,
      tail: raw.tail === true,
      isLastLineRead: raw.last_line === 'take',
      settleMs,
      keepMs,
    };
    const conflict = conflictOf(spec);
    if (conflict === undefined) return spec;
    report.problem(...conflict);
    return undefined;
  },
  readValue: ({ column }: Members) => (column === undefined ? {} : { column: column as string | number }),
  placeOf: ({ folder, tail }) => ({ folder, isWritten: !tail }),
  addressOf: ({ folder }, { column }) => (column === undefined ? folder : `${folder} column ${column}`),
  async open(context) {
    const { CsvSource } = await import('./csv-source.ts');
    return new CsvSource(context);
  },
  async *scan({ source, clock, signal }) {
    const { scanCsv } = await import('./scan.ts');
    yield* scanCsv(source.spec, clock, signal);
  },
};

/** Returns the arguments of `problem` if members contradict each other. */
function conflictOf(spec: CsvSpec): Parameters<MemberReport['problem']> | undefined {
  const { decimal, thousands, hasHeader, form, timeColumns, unitsRow } = spec;
  if (thousands === decimal) {
    const instead = `set decimal: "${decimal === '.' ? ',' : '.'}", or remove thousands`;
    return ['thousands', `thousands "${decimal}" is also the decimal separator`, instead];
  }
  if (spec.time.format !== undefined && timeColumns.length === 0) {
    const instead = 'add a time column, for example time_column: Zeit, or remove time_format';
    return ['time_format', 'time_format requires time_column', instead];
  }
  if (hasHeader) return undefined;
  if (form === 'long') {
    return ['form', 'form: long requires a header', 'remove "header: false", or use form: wide'];
  }
  if (timeColumns.some((column) => typeof column === 'string')) {
    const instead = 'specify a column number, for example time_column: 1';
    return ['time_column', 'without a header, columns must be numbers from 1', instead];
  }
  if (unitsRow === 0) return undefined;
  return ['units_row', 'units_row requires a header', 'set skip_lines, or remove "header: false"'];
}

function readTime(member: string, raw: unknown, report: MemberReport): number | undefined {
  const reading = readDuration(String(raw));
  if ('value' in reading) return reading.value;
  report.problem(member, `${member} "${printable(String(raw))}" ${reading.reason}`, 'use a value such as 10s or 30d');
  return undefined;
}

function readFormat(format: string | undefined, zone: string, report: MemberReport): CsvSpec['time'] | undefined {
  try {
    new Intl.DateTimeFormat('en-US', { timeZone: zone });
  } catch {
    report.problem('zone', `unknown time zone "${printable(zone)}"`, 'use a value such as Europe/Berlin or UTC');
    return undefined;
  }
  if (format === undefined) return { zone };
  const problem = formatProblem(format);
  if (problem === undefined) return { zone, format };
  const instead = 'use a value such as "MM/DD/YYYY HH:mm:ss", "DD MMM YYYY HH:mm", unix or excel';
  report.problem('time_format', `time_format "${printable(format)}" ${problem}`, instead);
  return undefined;
}
