import { describe, expect, it } from 'vitest';
import { table } from '../../../src/base/table.ts';

const ROWS = [
  ['id', 'event type', 'at', 'what'],
  ['12', 'threshold_reached', '2026-11-21 03:10:01', 'FT-101 is above its limit of 80 m3/h since ten'],
  ['13', 'asset_appeared', '2026-11-21 03:11:00', ''],
];

describe('table', () => {
  it('prints columns side by side if they fit', () => {
    expect(table(ROWS, 120).split('\n')).toEqual([
      'id  event type         at                   what',
      '12  threshold_reached  2026-11-21 03:10:01  FT-101 is above its limit of 80 m3/h since ten',
      '13  asset_appeared     2026-11-21 03:11:00',
    ]);
    expect(table(ROWS, 70).split('\n')[1]).toBe(
      '12  threshold_reached  2026-11-21 03:10:01  FT-101 is above its limit…',
    );
  });

  it('prints blocks at a width of 40 columns without truncating text', () => {
    expect(table(ROWS, 40).split('\n')).toEqual([
      'id          12',
      'event type  threshold_reached',
      'at          2026-11-21 03:10:01',
      'what        FT-101 is above its limit of',
      '            80 m3/h since ten',
      '',
      'id          13',
      'event type  asset_appeared',
      'at          2026-11-21 03:11:00',
    ]);
  });

  it('wraps the second of two columns at a width of 40 columns', () => {
    const rows = [
      ['state', 'valid'],
      ['last error', 'the token endpoint answered 401 to the password grant'],
    ];
    expect(table(rows, 40).split('\n')).toEqual([
      'state       valid',
      'last error  the token endpoint answered',
      '            401 to the password grant',
    ]);
  });
});
