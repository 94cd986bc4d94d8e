import { describe, expect, it } from 'vitest';
import { UNSHAPED } from '../../../../src/config/tags.ts';
import { FileColumns } from '../../../../src/sources/csv/columns.ts';
import type { CsvSpec } from '../../../../src/sources/csv/csv-spec.ts';
import { check } from '../../config/folder.ts';

function read(text: string, decimal: '.' | ',', thousands: CsvSpec['thousands']): number | string | undefined {
  const spec = {
    decimal,
    thousands,
    separator: ';',
    hasHeader: true,
    form: 'wide',
    timeColumns: [],
    time: { zone: 'UTC' },
  };
  const point = { name: 'T v', series: 1, everyMs: 0, shaping: UNSHAPED, spec: {} };
  const [cell] = new FileColumns(spec as unknown as CsvSpec, [point], 'v;w').read(`${text};1`, 2, undefined).cells;
  return cell?.problem ?? (cell?.raw as number);
}

describe('thousands separator', () => {
  it.each([
    ['1.234.567,5', ',', '.', 1_234_567.5],
    ['-1,234.5', '.', ',', -1234.5],
    ['1,234', '.', ',', 1234],
    ['1 234,5', ',', ' ', 1234.5],
    ['1\u00a0234\u202f567', ',', ' ', 1_234_567],
    ["12'345.25", '.', "'", 12_345.25],
    ['12’345', '.', "'", 12_345],
    ['1234,5', ',', '.', 1234.5],
    ['1.5', '.', ',', 1.5],
  ] as const)('is removed: %s with decimal %j and thousands %j is %d', (text, decimal, thousands, number) => {
    expect(read(text, decimal, thousands)).toBe(number);
  });

  it.each([
    ['1.5', ',', '.'],
    ['1.23.456', ',', '.'],
    ['1234.567', ',', '.'],
    ['1,5', '.', ','],
    ['0.123', ',', '.'],
    ['000,000', '.', ','],
    ['1.234', ',', undefined],
  ] as const)(
    'is required before groups of three digits: %s with decimal %j and thousands %j is not a number',
    (text, decimal, thousands) => {
      expect(read(text, decimal, thousands)).toBe(`"${text}" is not a number`);
    },
  );

  it('must differ from the decimal separator, and a row of units requires a header', () => {
    const linesOf = (members: string) =>
      check({
        'tags.yaml': `sources: { a: { csv: /srv/in, ${members} } }\ntags: { T: { asset: 1, values: { v: { from: a, column: 1 } } } }\n`,
      }).lines;
    expect(linesOf('decimal: ",", thousands: "."')).toEqual([]);
    expect(linesOf('thousands: "."')).toEqual([
      expect.stringMatching(/thousands "\." is also the decimal separator, set decimal: ",", or remove thousands/),
    ]);
    expect(linesOf('header: false, units_row: 1')).toEqual([expect.stringMatching(/units_row requires a header/)]);
    expect(linesOf('thousands: x')).toEqual([expect.stringContaining('use one of')]);
  });
});
