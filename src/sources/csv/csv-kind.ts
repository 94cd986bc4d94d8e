import { DURATION_SCHEMA } from '../../config/duration-schema.ts';
import { printable } from '../../config/problem.ts';
import type { MemberReport, Members } from '../../config/source-kinds.ts';
import { readDurationMember } from '../duration-member.ts';
import type { Quality } from '../intake/gate.ts';
import { formatProblem, readZone } from '../intake/logger-time.ts';
import type { SourceKind } from '../source-kind.ts';
import type { ColumnName, CsvSpec, CsvValue, Thousands } from './columns.ts';

const SETTLE_MS = 10_000;
const KEEP_MS = 30 * 86_400_000;
const ANY_DURATION = { minMs: 0, maxMs: Number.POSITIVE_INFINITY, range: 'a duration', example: '10s or 30d' };
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
    name_column: {
      ...COLUMN,
      description: 'CSV: column with the name of the value, for files with one value per row.',
      examples: ['VarName'],
    },
    value_column: {
      ...COLUMN,
      description: 'CSV: column with the value, for files with one value per row.',
      examples: ['VarValue'],
    },
    quality_column: {
      ...COLUMN,
      description:
        'CSV: quality column: words that begin with good, uncertain or bad, or OPC Classic codes such as 192.',
      examples: ['Quality'],
    },
    quality_map: {
      type: 'object',
      minProperties: 1,
      maxProperties: 100,
      title: 'a mapping of texts to good, uncertain or bad',
      description: 'CSV: quality of other texts in the quality column.',
      examples: ['{ 1: good, 0: bad }'],
      propertyNames: { maxLength: 64, title: 'a text of at most 64 characters', examples: ['OK'] },
      additionalProperties: { enum: ['good', 'uncertain', 'bad'] },
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
        'CSV: time format consisting of YYYY MM DD HH mm ss SSS, hh and A, MMM for the month name; or unix, unix_ms, excel, wincc. Default: ISO 8601 or DD.MM.YYYY HH:mm:ss.',
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
      description: 'CSV: time without changes after which a file is complete. Default: 10s.',
    },
    keep: {
      ...DURATION_SCHEMA,
      description: 'CSV: retention period for files in done/; 0 keeps them forever. Default: 30d.',
    },
  },
  valueMembers: {
    column: {
      ...COLUMN,
      description: 'CSV: value column. Default: the column with the same name as the key.',
      examples: ['Durchfluss', 3],
    },
    name: {
      type: 'string',
      minLength: 1,
      maxLength: 256,
      title: 'a name',
      description: 'CSV: name of the value in name_column. Default: the key.',
      examples: ['Tank1_Level'],
    },
    quality_column: {
      ...COLUMN,
      description: "CSV: quality column of this value. Default: the source's quality column.",
      examples: ['Durchfluss Q'],
    },
  },
  readSource(raw: Members, report) {
    const settleMs = readDurationMember(raw, 'settle', SETTLE_MS, ANY_DURATION, report);
    const keepMs = readDurationMember(raw, 'keep', KEEP_MS, ANY_DURATION, report);
    const time = readFormat(raw, report);
    if (settleMs === undefined || keepMs === undefined || time === undefined) return undefined;
    const nameColumn = readColumn(raw, 'name_column', report);
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
      form: (raw.form ?? (nameColumn === undefined ? 'wide' : 'long')) as CsvSpec['form'],
      nameColumn,
      valueColumn: readColumn(raw, 'value_column', report),
      qualityColumn: readColumn(raw, 'quality_column', report),
      qualityMap: raw.quality_map as Readonly<Record<string, Quality>> | undefined,
      timeColumns: readTimeColumns(raw, report),
      time,
      tail: raw.tail === true,
      isLastLineRead: raw.last_line === 'take',
      settleMs,
      keepMs,
    };
    const conflict = conflictOf(spec);
    if (conflict !== undefined) return report.problem(...conflict);
    if (spec.timeColumns.length === 0 && raw.time_from !== 'arrival') {
      const reason = 'without time_column, rows are stored with the arrival time';
      report.warning('csv', reason, 'add a time column, for example time_column: Zeit, or set time_from: arrival');
    }
    return spec;
  },
  readValue: (raw: Members, report) =>
    ({
      column: readColumn(raw, 'column', report),
      name: raw.name,
      qualityColumn: readColumn(raw, 'quality_column', report),
    }) as CsvValue,
  conflictOf({ form, nameColumn }, value) {
    if (form === 'wide') {
      if (value.name === undefined) return undefined;
      return ['name', 'name requires name_column of the source', 'set name_column and value_column, or use column'];
    }
    if (value.column !== undefined) {
      const instead = nameColumn === undefined ? 'remove column' : 'set name, for example name: Tank1_Level';
      return ['column', 'column is not used if each row contains one value', instead];
    }
    if (value.name !== undefined && nameColumn === undefined) {
      return ['name', 'name requires name_column of the source', 'set name_column and value_column, or remove name'];
    }
    if (value.qualityColumn === undefined) return undefined;
    const instead = 'set quality_column of the source';
    return ['quality_column', 'quality_column of a value is not used if each row contains one value', instead];
  },
  placeOf: ({ folder, tail }) => ({ folder, isWritten: !tail }),
  addressOf({ folder }, { column, name }) {
    if (name !== undefined) return `${folder} name ${name}`;
    return column === undefined ? folder : `${folder} column ${column}`;
  },
  async open(context) {
    const { CsvSource } = await import('./csv-source.ts');
    return new CsvSource(context);
  },
  async *scan({ source, clock, signal }) {
    const { scanCsv } = await import('./scan.ts');
    yield* scanCsv(source.spec, clock, signal);
  },
};

function readTimeColumns(raw: Members, report: MemberReport): readonly ColumnName[] {
  if (!Array.isArray(raw.time_column)) return [readColumn(raw, 'time_column', report) ?? []].flat();
  return raw.time_column.map((column: ColumnName, at) =>
    asWritten(column, report.writtenText('time_column', `/${at}`)),
  );
}

function readColumn(raw: Members, member: string, report: MemberReport): ColumnName | undefined {
  const column = raw[member] as ColumnName | undefined;
  return column === undefined ? undefined : asWritten(column, report.writtenText(member));
}

/** Returns the number or name of a column. A number in another form, such as 002 or 0x2, is a name. */
function asWritten(column: ColumnName, text: string | undefined): ColumnName {
  return typeof column === 'string' || text === undefined || text === String(column) ? column : text;
}

/** Returns the arguments of `problem` if members contradict each other. */
function conflictOf(spec: CsvSpec): Parameters<MemberReport['problem']> | undefined {
  const { decimal, thousands, hasHeader, form, nameColumn, valueColumn, qualityColumn, timeColumns, unitsRow } = spec;
  if (thousands === decimal) {
    const instead = `set decimal: "${decimal === '.' ? ',' : '.'}", or remove thousands`;
    return ['thousands', `thousands "${decimal}" is also the decimal separator`, instead];
  }
  if (spec.time.format !== undefined && timeColumns.length === 0) {
    const instead = 'add a time column, for example time_column: Zeit, or remove time_format';
    return ['time_format', 'time_format requires time_column', instead];
  }
  if (nameColumn === undefined && valueColumn !== undefined) {
    return [
      'value_column',
      'value_column requires name_column',
      'set name_column, or set column if each column contains one value',
    ];
  }
  if (nameColumn !== undefined && valueColumn === undefined) {
    return ['name_column', 'name_column requires value_column', 'set value_column, for example value_column: VarValue'];
  }
  if (nameColumn !== undefined && form === 'wide') {
    return ['form', 'form: wide contradicts name_column', 'remove form, or set column for each value instead'];
  }
  const members = { name_column: nameColumn, value_column: valueColumn, quality_column: qualityColumn };
  const used = [...timeColumns.map((column) => ['time_column', column] as const), ...Object.entries(members)];
  const columns = used.filter(([, column]) => column !== undefined);
  for (const [at, [member, column]] of columns.entries()) {
    const other = columns.slice(0, at).find(([, one]) => one === column);
    if (other === undefined) continue;
    const reason = `${other[0]} and ${member} are both "${printable(String(column))}"`;
    return [member, reason, 'use a separate column for each'];
  }
  if (hasHeader) return undefined;
  if (form === 'long' && nameColumn === undefined) {
    return ['form', 'form: long requires a header', 'remove "header: false", or set name_column and value_column'];
  }
  const [named] = columns.find(([, column]) => typeof column === 'string') ?? [];
  if (named !== undefined) {
    const instead = `specify a column number, for example ${named}: 1`;
    return [named, 'without a header, columns must be numbers from 1', instead];
  }
  if (unitsRow === 0) return undefined;
  return ['units_row', 'units_row requires a header', 'set skip_lines, or remove "header: false"'];
}

function readFormat(raw: Members, report: MemberReport): CsvSpec['time'] | undefined {
  const { zone } = readZone(raw, report);
  if (raw.zone !== undefined && zone === undefined) return undefined;
  if (raw.time_format === undefined) return { zone };
  const format = String(raw.time_format);
  const problem = formatProblem(format);
  if (problem === undefined) return { zone, format };
  const instead = 'use a value such as "MM/DD/YYYY HH:mm:ss", "DD MMM YYYY HH:mm", unix or excel';
  return report.problem('time_format', `time_format "${printable(format)}" ${problem}`, instead);
}
