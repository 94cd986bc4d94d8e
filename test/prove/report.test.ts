import { mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterEach, beforeEach, expect, it } from 'vitest';
import { reportText } from '../../scripts/prove.d/report.ts';
import { type Kept, readShown, showResults } from '../../scripts/prove.d/results.ts';

let folder: string;
beforeEach(() => {
  folder = join(mkdtempSync(join(tmpdir(), 'tagferry-proof-')), 'proof');
});
afterEach(() => rmSync(join(folder, '..'), { recursive: true, force: true }));

const PAGE =
  'By hand.\n\n<!-- plug -->\nold\n<!-- /plug -->\n\nOpen: one riddle.\n\n<!-- session -->\n<!-- /session -->\n';

function cuts(at: string, acknowledged: number): Kept {
  const values = { offered: 0, acknowledged, delivered: 0, missing: 0, invented: 0, different: 0, repeated: 0 };
  const events = { sent: 0, acknowledged: 0, missing: 0, invented: 0, repeated: 0 };
  const report = { cuts: 8, values, allowedRepeats: 0, events };
  return { part: 'plug', name: 'seed 1', at, wrong: [], isControl: false, report };
}

function month(at: string): Kept {
  const report = {
    seed: 1,
    days: 30,
    calls: 7,
    tokens: 9,
    faults: {},
    deadTokens: 0,
    renewalsAtOnce: 1,
    leftAfterStop: 0,
  };
  return { part: 'session', name: 'seed 1', at, load: 1.5, machine: { cores: 2, gib: 24 }, wrong: [], report };
}

const page = (text = PAGE) => reportText(text, readShown(folder), folder);

it('repeated part replaces its figures on the page, and preserves manually written text', () => {
  showResults(folder, [cuts('2026-01-02T03:04:05Z', 1_111), month('2026-01-02T03:04:05Z')]);
  const first = page();
  expect(first).toContain('1,111');
  showResults(folder, [cuts('2026-02-03T04:05:06Z', 2_222)]);
  const second = page(first);
  expect(second).not.toContain('1,111');
  expect(second).toMatch(
    /<!-- plug -->\n\*2026-02-03 04:05 UTC\.\*\n\n\| run [\s\S]*2,222[\s\S]*<!-- \/plug -->\n\nOpen: one riddle\.\n/,
  );
  expect(second).toContain('*2026-01-02 03:04 UTC, on 2 cores and 24 GiB, with 1.5 runnable processes per core.*');
  expect(second.startsWith('By hand.\n')).toBe(true);
  expect(page(second)).toBe(second);
});

it('results from an older run do not replace newer results', () => {
  showResults(folder, [cuts('2026-02-03T04:05:06Z', 2_222)]);
  showResults(folder, [cuts('2026-01-02T03:04:05Z', 1_111)]);
  expect(page()).toContain('2,222');
});

it('an incomplete run is listed on the page', () => {
  const ended = {
    part: 'session',
    name: 'seed 7',
    at: '2026-02-03',
    wrong: ['it came to no end: why\nits output'],
  } as const;
  showResults(folder, [{ ...ended, wrong: [...ended.wrong] }, month('2026-02-03')]);
  expect(page()).toMatch(
    /<!-- session -->[\s\S]*\n\*\*Wrong\*\* in seed 7: it came to no end: why\.\n<!-- \/session -->/,
  );
});
