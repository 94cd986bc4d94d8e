import { describe, expect, it } from 'vitest';
import { CsvBench } from './csv-bench.ts';

/** Returns the number that is stored for a cell, or the report of its file. */
async function read(text: string, decimal: string, thousands: string | undefined): Promise<number | string> {
  const more = thousands === undefined ? '' : `, thousands: "${thousands}"`;
  const bench = new CsvBench(`settle: 50ms, separator: ";", decimal: "${decimal}"${more}`, 'v: { from: drop }');
  bench.write('a.csv', `v;w\n${text};1\n`);
  await bench.open();
  await bench.until(() => bench.below().every((name) => name !== 'a.csv'));
  return bench.values()[0] ?? bench.read('failed/a.csv.report.txt');
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
  ] as const)('is removed: %s with decimal %j and thousands %j is %d', async (text, decimal, thousands, number) => {
    expect(await read(text, decimal, thousands)).toBe(number);
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
    async (text, decimal, thousands) => {
      expect(await read(text, decimal, thousands)).toContain(`"${text}" is not a number`);
    },
  );
});
