import { readDuration } from '../../base/quantity.ts';
import { DURATION_SCHEMA } from '../../config/duration-schema.ts';
import { printable } from '../../config/problem.ts';
import type { MemberReport, Members } from '../../config/source-kinds.ts';
import type { SourceKind } from '../source-kind.ts';
import type { CsvSpec, CsvValue } from './csv-spec.ts';
import { formatProblem } from './logger-time.ts';

const SETTLE = '10s';
const KEEP = '30d';
const COLUMN = {
  type: ['string', 'integer'],
  minLength: 1,
  maxLength: 256,
  minimum: 1,
  maximum: 10_000,
  title: 'the name or number of a column',
};
const BY_NUMBER = 'columns are named by number, from 1, where there is no header';

/** Files of a data logger or a share: `drop: { csv: /srv/tagferry/in, separator: ";", decimal: "," }`. */
export const CSV: SourceKind<CsvSpec, CsvValue> = {
  kind: 'csv',
  inOrder: true,
  example: 'csv: /srv/tagferry/in',
  sourceMembers: {
    csv: {
      type: 'string',
      minLength: 1,
      title: 'a folder',
      description: 'CSV: the folder that files come into.',
      examples: ['/srv/tagferry/in'],
    },
    pattern: {
      type: 'string',
      minLength: 1,
      maxLength: 256,
      default: '*.csv',
      title: 'a pattern of file names',
      description: 'CSV: which files of the folder, * and ? standing for any.',
      examples: ['*.csv'],
    },
    form: {
      enum: ['wide', 'long'],
      default: 'wide',
      description: 'CSV: a column for each value, or rows that name their tag and key.',
    },
    separator: {
      enum: [',', ';', '\t', '|'],
      description: 'CSV: between the fields; left out, what the first line uses.',
    },
    decimal: { enum: ['.', ','], default: '.', description: 'CSV: the decimal mark.' },
    encoding: {
      enum: ['utf-8', 'windows-1252', 'utf-16le', 'utf-16be'],
      default: 'utf-8',
      description: 'CSV: the encoding of the files.',
    },
    header: {
      type: 'boolean',
      default: true,
      title: 'true or false',
      description: 'CSV: the first line names the columns.',
    },
    skip_lines: {
      type: 'integer',
      minimum: 0,
      maximum: 1_000,
      default: 0,
      title: 'a number of lines',
      description: 'CSV: lines before the header that say something else.',
    },
    time_column: {
      type: [...COLUMN.type, 'array'],
      minLength: 1,
      maxLength: 256,
      minimum: 1,
      maximum: 10_000,
      minItems: 1,
      maxItems: 4,
      items: COLUMN,
      title: 'the column of the time, or a list of them',
      description:
        'CSV: where the time of a row stands; several columns are joined by a space. Left out, it is that of its arrival.',
      examples: ['Zeit'],
    },
    time_format: {
      type: 'string',
      minLength: 1,
      maxLength: 64,
      title: 'a format of times',
      description:
        'CSV: YYYY MM DD HH mm ss SSS, hh and A, or unix, unix_ms, excel. Left out: ISO 8601 or DD.MM.YYYY HH:mm:ss.',
      examples: ['MM/DD/YYYY hh:mm:ss A'],
    },
    zone: {
      type: 'string',
      minLength: 1,
      maxLength: 64,
      default: 'UTC',
      title: 'a time zone',
      description: 'CSV: the zone of times without an offset.',
      examples: ['Europe/Berlin'],
    },
    tail: {
      type: 'boolean',
      default: false,
      title: 'true or false',
      description: 'CSV: files grow and are rotated; they are read as they grow, and stay where they are.',
    },
    settle: {
      ...DURATION_SCHEMA,
      description: `CSV: a file that did not change for so long is complete; ${SETTLE} unless told.`,
    },
    keep: { ...DURATION_SCHEMA, description: `CSV: how long files stay in done/; ${KEEP} unless told, 0 is for ever.` },
  },
  valueMembers: {
    column: {
      ...COLUMN,
      description: "CSV: the value's column; left out, the one that is named as its key.",
      examples: ['Durchfluss', 3],
    },
  },
  readSource(raw: Members, report) {
    const settleMs = readTime('settle', raw.settle ?? SETTLE, report);
    const keepMs = readTime('keep', raw.keep ?? KEEP, report);
    const zone = readZone(String(raw.zone ?? 'UTC'), report);
    const time = readFormat(raw.time_format as string | undefined, zone, report);
    const hasHeader = raw.header !== false;
    const form = (raw.form ?? 'wide') as CsvSpec['form'];
    const timeColumns = raw.time_column === undefined ? [] : ([raw.time_column].flat() as (string | number)[]);
    if (!hasHeader && form === 'long') {
      report.problem(
        'form',
        'the long form names its columns in a header',
        'remove "header: false", or use form: wide',
      );
      return undefined;
    }
    if (!hasHeader && timeColumns.some((column) => typeof column === 'string')) {
      report.problem('time_column', BY_NUMBER, 'write for example time_column: 1');
      return undefined;
    }
    if (settleMs === undefined || keepMs === undefined || time === undefined) return undefined;
    return {
      folder: report.pathOf(String(raw.csv)),
      pattern: String(raw.pattern ?? '*.csv'),
      ...(raw.separator === undefined ? {} : { separator: String(raw.separator) }),
      decimal: (raw.decimal ?? '.') as CsvSpec['decimal'],
      encoding: String(raw.encoding ?? 'utf-8'),
      skipLines: Number(raw.skip_lines ?? 0),
      hasHeader,
      form,
      timeColumns,
      time,
      tail: raw.tail === true,
      settleMs,
      keepMs,
    };
  },
  readValue: ({ column }: Members) => (column === undefined ? {} : { column: column as string | number }),
  placeOf: ({ folder, tail }) => ({ folder, isWritten: !tail }),
  addressOf: ({ folder }, { column }) => (column === undefined ? folder : `${folder} column ${column}`),
  async open(context) {
    const { CsvSource } = await import('./csv-source.ts');
    return new CsvSource(context);
  },
  async test({ source, points, signal }) {
    const { testCsv } = await import('./csv-look.ts');
    return await testCsv(source.spec, points, signal);
  },
  async *scan({ source, signal }) {
    const { scanCsv } = await import('./csv-look.ts');
    yield* scanCsv(source.spec, signal);
  },
};

function readTime(member: string, raw: unknown, report: MemberReport): number | undefined {
  const reading = readDuration(String(raw));
  if ('value' in reading) return reading.value;
  report.problem(member, `${member} "${printable(String(raw))}" ${reading.reason}`, 'write for example 10s or 30d');
  return undefined;
}

function readZone(zone: string, report: MemberReport): string | undefined {
  try {
    new Intl.DateTimeFormat('en-US', { timeZone: zone });
    return zone;
  } catch {
    report.problem('zone', `there is no zone "${printable(zone)}"`, 'write for example Europe/Berlin or UTC');
    return undefined;
  }
}

function readFormat(
  format: string | undefined,
  zone: string | undefined,
  report: MemberReport,
): CsvSpec['time'] | undefined {
  const problem = format === undefined ? undefined : formatProblem(format);
  if (problem !== undefined) {
    const instead = 'write for example "MM/DD/YYYY HH:mm:ss", unix or excel';
    report.problem('time_format', `time_format "${printable(format!)}" ${problem}`, instead);
    return undefined;
  }
  return zone === undefined ? undefined : { zone, ...(format === undefined ? {} : { format }) };
}
