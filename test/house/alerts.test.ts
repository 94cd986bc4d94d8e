import { execFileSync, spawnSync } from 'node:child_process';
import { readFileSync } from 'node:fs';
import { join } from 'node:path';
import { describe, expect, it } from 'vitest';
import { parse } from 'yaml';

const FOLDER = join(import.meta.dirname, '../../config/monitoring');
const RULES = join(FOLDER, 'tagferry.rules.yml');
const TESTS = join(FOLDER, 'tagferry.rules.test.yml');

interface Rules {
  groups: {
    rules: { alert: string; expr: string; labels: { severity: string }; annotations: Record<string, string> }[];
  }[];
}

const rules = (parse(readFileSync(RULES, 'utf8')) as Rules).groups.flatMap((group) => group.rules);

interface Tests {
  tests: { name: string; promql_expr_test?: { exp_samples: { labels: string }[] }[] }[];
}

describe('the alert rules', () => {
  it('are rules to Prometheus', () => {
    const said = execFileSync('promtool', ['check', 'rules', RULES], { encoding: 'utf8' });
    expect(said).toContain(`${rules.length} rules found`);
  });

  // Hours of rules in one process: a machine that does much else takes its time for it.
  const PATIENCE = { timeout: 300_000 };
  it('fire on what they are about and not on what only resembles it, as promtool plays it through', PATIENCE, () => {
    const { status, stdout, stderr } = spawnSync('promtool', ['test', 'rules', TESTS], { encoding: 'utf8' });
    expect(`${stdout}${stderr}`).toContain('SUCCESS');
    expect(status).toBe(0);
  });

  it('are each played through in both ways, alone', () => {
    const { tests } = parse(readFileSync(TESTS, 'utf8')) as Tests;
    const fired = (name: string) =>
      tests
        .find((one) => one.name === name)
        ?.promql_expr_test?.flatMap(({ exp_samples }) => exp_samples.map((one) => one.labels));
    for (const { alert } of rules) {
      expect(fired(`${alert} fires`), alert).toEqual([`{alertname="${alert}"}`]);
      expect(fired(`${alert} does not fire`), alert).toEqual([]);
    }
  });

  it('say how urgent it is, which gateway, and what to do', () => {
    for (const { alert, labels, annotations } of rules) {
      expect(['critical', 'warning'], alert).toContain(labels.severity);
      expect(annotations.summary, alert).toContain('{{ $labels.instance }}');
      expect(annotations.action, alert).toMatch(/\w{4,}.*\.$/);
    }
  });
});
