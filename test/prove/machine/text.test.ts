import { expect, it } from 'vitest';
import { machineText } from '../../../scripts/prove.d/machine.ts';
import { peersText } from '../../../scripts/prove.d/peers.ts';

type MachineRun = Parameters<typeof machineText>[0][number];
type Glimpse = MachineRun['report']['glimpses'][number];

const NOTHING = { offered: 0, acknowledged: 0, delivered: 0, missing: 0, invented: 0, different: 0, repeated: 0 };

function glimpse(doing: string, owed: number, missing: number, lost: number): Glimpse {
  const values = { owed, missing, invented: 0, different: 0 };
  const fates = { lost, kept: 1, torn: 2 };
  return { moment: 'flush', before: 'a flush', doing, fates, values, events: { owed: 1, missing: 1 } };
}

function run(name: string, glimpses: Glimpse[], isPromised: boolean): MachineRun {
  const values = { ...NOTHING, acknowledged: 1_234, missing: 1 };
  const events = { acknowledged: 9, missing: 0, repeated: 0 };
  const report = { seed: 1, glimpses, cuts: [], values, allowedRepeats: 0, events, flushes: 5, said: [] };
  return { part: 'machine', name, at: '2026-01-02', wrong: [], report, isControl: false, isPromised, disks: 'ext4' };
}

it('report counts values missing from a disk image, and power cuts that hit their intended moment', () => {
  const text = machineText([
    run('ext4, images, seed 1', [glimpse('flush', 10, 0, 3), glimpse('compaction', 20, 2, 0)], true),
    run('ext4 without barriers, images, seed 1', [glimpse('flush', 5, 5, 7)], false),
  ]);
  expect(text).toContain(', 2 of them with unflushed writes.');
  expect(text).toContain('| ext4, images, seed 1 | ext4 | 0 | 2 | 3 / 4 / 2 | 1,234 | 30 | 3 | 0 | 0 | 0 | 9 / 2 |');
  expect(text).toContain('| compaction | 0 | 1 | 0 | 0 |\n| flush | 0 | 1 | 0 | 0 |');
  expect(text).toMatch(/Not run for this page: control, images, seed 1; ext4, seed 1; .*f2fs, seed 1/);
});

it('report sums another program’s losses across power cuts, and lists its losses after a clean stop', () => {
  const cuts = [
    { taken: 1_000, missing: 10, unflushed: 1 },
    { taken: 2_000, missing: 20, unflushed: 0 },
  ];
  const report = { peer: 'rsyslog', version: '8', speaks: 'relp', seed: 1, cuts, missingAfterStop: 4 } as const;
  const text = peersText([
    { part: 'peers', name: 'rsyslog, seed 1', at: '2026-01-02', wrong: [], report: { ...report } },
  ]);
  expect(text).toContain('| RELP | 2 | 3,000 | 30 | 4 |');
});
