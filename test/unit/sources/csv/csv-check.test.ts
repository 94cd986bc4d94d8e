import { describe, expect, it } from 'vitest';
import { check } from '../../config/folder.ts';

/** Returns the lines of `check` for a source with these members, and a value with these members. */
function linesOf(members: string, value = 'column: 1'): string[] {
  const { lines } = check({
    'tags.yaml': `sources: { a: { csv: /srv/in, ${members} } }\ntags: { T: { asset: 1, values: { v: { from: a, ${value} } } } }\n`,
  });
  return lines.map((line) => line.replace(/^DIR\/tags.yaml:\d: /, ''));
}

const NAMES = 'time_column: t, name_column: n, value_column: w';

describe('check of a CSV source', () => {
  it.each([
    ['decimal and thousands separators that differ', 'time_column: t, decimal: ",", thousands: "."'],
    ['no time column if the arrival time is intended', 'time_from: arrival'],
    [
      'one value per row',
      `${NAMES}, quality_column: q, quality_map: { 1: good, "OK": good, 0: bad }`,
      'name: "Tank 1"',
    ],
    ['one value per row without a header', 'header: false, time_column: 1, name_column: 2, value_column: 3', 'name: x'],
    ['a quality column per value', 'time_column: t', 'column: a, quality_column: b'],
  ])('accepts %s', (_what, members, value?: string) => {
    expect(linesOf(members, value)).toEqual([]);
  });

  it.each([
    ['thousands: "."', 'thousands "." is also the decimal separator, set decimal: ",", or remove thousands'],
    ['time_column: t, thousands: x', 'use one of'],
    ['time_column: t, last_line: last', 'use one of'],
    ['header: false, time_column: 1, units_row: 1', 'units_row requires a header'],
    ['time_format: unix', 'time_format requires time_column, add a time column'],
    ['time_column: 1, time_format: "DD.MM.YYYY HH:mm:SS"', 'contains "SS", which is not a token, use a value such as'],
    ['time_column: 1, time_format: "HH:mm:ss"', 'has no year, month and day'],
    ['time_column: 1, zone: Berlin', 'unknown time zone "Berlin", use a value such as Europe/Berlin or UTC'],
    ['time_column: t, name_column: n', 'name_column requires value_column, set value_column'],
    ['time_column: t, value_column: n', 'value_column requires name_column'],
    [`form: wide, ${NAMES}`, 'form: wide contradicts name_column'],
    ['time_column: t, name_column: n, value_column: n', 'name_column and value_column are both "n"'],
    ['time_column: [d, t], quality_column: t', 'time_column and quality_column are both "t"'],
    [`header: false, ${NAMES}`, 'without a header, columns must be numbers from 1, specify a column number'],
    ['header: false, time_column: 1, form: long', 'form: long requires a header'],
    [
      'time_column: t, quality_column: q, quality_map: { 1: fine }',
      '"fine" is unknown, use one of "good", "uncertain", "bad"',
    ],
  ])('rejects %s', (members, problem) => {
    expect(linesOf(members)).toEqual([expect.stringContaining(problem)]);
  });

  it.each([
    [NAMES, 'column: 1', 'column is not used if each row contains one value, set name'],
    [NAMES, 'quality_column: q', 'quality_column of a value is not used if each row contains one value'],
    ['time_column: t', 'name: x', 'name requires name_column of the source'],
    ['time_column: t, form: long', 'name: x', 'name requires name_column of the source'],
    ['time_column: t, form: long', 'column: 1', 'column is not used if each row contains one value, remove column'],
  ])('rejects a source with %s and a value with %s', (members, value, problem) => {
    expect(linesOf(members, value)).toEqual([expect.stringContaining(problem)]);
  });

  it('warns if rows are stored with the arrival time, because the source has no time column', () => {
    expect(linesOf('settle: 1s')).toEqual([
      'warning: "/srv/in": without time_column, rows are stored with the arrival time, add a time column, for example time_column: Zeit, or set time_from: arrival',
    ]);
  });

  it.each(['fast', 'full'])(
    'uses column names as written, even if YAML reads them as numbers (%s parser)',
    (parser) => {
      const { configuration, lines } = check({
        'tags.yaml': `sources: { drop: { csv: /srv/in, time_column: [001, 2], quality_column: 0x4 } }
tags: { T: { asset: 1, values: { v: { from: drop, column: 002 }, w: { from: drop, column: 3 } } } }
like: ${parser === 'fast' ? '{}' : '&anchor {}'}
`,
      });
      expect(lines).toEqual([]);
      const { sources, tags } = configuration!.tags;
      expect(sources.get('drop')!.spec).toMatchObject({ timeColumns: ['001', 2], qualityColumn: '0x4' });
      const values = [...tags.get('T')!.values.values()];
      expect(values.map(({ from }) => (from!.spec as { column: unknown }).column)).toEqual(['002', 3]);
    },
  );
});
