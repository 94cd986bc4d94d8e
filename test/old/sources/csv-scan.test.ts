import { mkdirSync, mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterAll, describe, expect, it } from 'vitest';
import { runVerb } from '../commands/verb-run.ts';

const folder = mkdtempSync(join(tmpdir(), 'tagferry-csv-scan-'));
afterAll(() => rmSync(folder, { recursive: true }));

describe('tagferry sources scan of a CSV folder', () => {
  it('prints members and lines with which the values are read', async () => {
    const config = join(folder, 'config');
    const inbox = join(folder, 'in');
    for (const path of [config, inbox]) mkdirSync(path);
    writeFileSync(
      join(inbox, 'a.csv'),
      'Datum;Zeit;Flow [m³/h];State\n;;m³/h;\n01.02.2026;12:00:01,250;1.234,5;RUN\n01.02.2026;12:00:02,250;1.234;OFF\n',
    );
    const write = (members: string, lines = '') =>
      writeFileSync(
        join(config, 'tags.yaml'),
        `sources: { drop: { csv: ${inbox}${members} } }\ntags:\n  T:\n    asset: 1\n${lines}`,
      );
    write('');
    const scanned = await runVerb(['sources', 'scan', 'drop', '--yes', '--config', config]);
    const [head = '', ...lines] = scanned.stdout.split('\n');
    expect(head).toBe(
      '# add to drop under sources: units_row: 1, decimal: ",", thousands: ".", time_column: [Datum, Zeit]',
    );
    expect(lines[1]).toMatch(/flow_m_h: \{ from: drop, column: "Flow \[m³\/h\]" \} +# 1\.234,5 m³\/h$/);
    write(`, ${head.slice('# add to drop under sources: '.length)}`, lines.join('\n'));
    const tested = await runVerb(['sources', 'test', 'drop', '--json', '--config', config]);
    expect(JSON.parse(tested.stdout)).toMatchObject([
      { key: 'flow_m_h', value: 1234.5, timestamp: '2026-02-01T12:00:01.250Z' },
      {
        key: 'state',
        problem: expect.stringContaining(
          '2 readings without a value, latest problem: line 4: "OFF" is not a number; for texts, set map in tags.yaml',
        ),
      },
    ]);
  });
});
