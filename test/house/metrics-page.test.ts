import { readFileSync } from 'node:fs';
import { join } from 'node:path';
import { describe, expect, it } from 'vitest';
import { createMetrics } from '../../src/ops/metrics.ts';
import type { QuotaReport } from '../../src/ops/quota.ts';
import { CALM_STATUS } from '../unit/doubles/calm-status.ts';

const { configuration: CONFIGURATION } = CALM_STATUS;
const ROOT = join(import.meta.dirname, '../..');
const PAGE = readFileSync(join(ROOT, 'docs/reference/metrics.md'), 'utf8');
const RULES = readFileSync(join(ROOT, 'config/monitoring/tagferry.rules.yml'), 'utf8');

/** Rows on the page as `name type labels`. */
function documented(): string[] {
  return [...PAGE.matchAll(/^\| `(tagferry_\w+)` \| (\w+) \| ([^|]*)\| ([^|]+) \| ([^|]+) \|/gm)].map(
    ([, name, type, labels]) => `${name} ${type} ${labels!.replaceAll(/[`,]/g, '').trim()}`.trim(),
  );
}

async function exposed(): Promise<{ name: string; row: string; labels: string[] }[]> {
  const registry = await createMetrics(() => {
    throw new Error('only names are looked at');
  }).registry();
  return registry.getMetricsAsArray().map((metric) => {
    const { name, labelNames, type } = metric as unknown as { name: string; labelNames: string[]; type?: string };
    const kind = type ?? metric.constructor.name.toLowerCase();
    return { name, labels: labelNames, row: `${name} ${kind} ${labelNames.join(' ')}`.trim() };
  });
}

function metricParts(quota?: QuotaReport) {
  return {
    session: { snapshot: () => ({ state: 'valid', grant: undefined }) },
    budget: { stats: () => ({ shareReason: 'configured' }) },
    uplink: { snapshot: () => ({ waitingIds: [] }) },
    buffer: { facts: { disk: {} }, committer: {}, problems: [] },
    events: { holds: { heldCount: () => 0 }, silentTargets: [] },
    settings: {},
    configuration: CONFIGURATION,
    version: '1',
    sources: [],
    certificates: [],
    identityConflicts: [],
    quota,
  } as never;
}

describe('docs/reference/metrics.md', () => {
  it('lists exactly the existing metrics, with type and labels', async () => {
    expect(documented().sort()).toEqual((await exposed()).map(({ row }) => row).sort());
  });

  it('lists label values that are known in advance', async () => {
    const registry = await createMetrics(() => metricParts()).registry();
    const text = await registry.metrics();
    const values = [...text.matchAll(/(?:reason|outcome|grant)="([^"]+)"/g)].map((match) => match[1]!);
    expect(values.length).toBeGreaterThan(20);
    for (const value of new Set(values)) {
      if (!/^\d+$/.test(value)) expect(PAGE).toContain(`\`${value}\``);
    }
  });
});

describe('/metrics', () => {
  it('omits unknown values until they are known', async () => {
    let quota: QuotaReport | undefined;
    const registry = await createMetrics(() => metricParts(quota)).registry();
    const samples = async () =>
      (await registry.metrics()).split('\n').filter((line) => line.startsWith('tagferry_quota'));
    expect(await samples()).toEqual([]);
    quota = { calls: 100, used: 7, payload: null, since: null };
    expect(await samples()).toEqual([expect.stringMatching(/ 100$/), expect.stringMatching(/ 7$/)]);
    quota = undefined;
    expect(await registry.metrics()).not.toMatch(/ nan$/im);
  });
});

describe('alert rules', () => {
  it('use existing metrics and labels', async () => {
    const names = new Map((await exposed()).map(({ name, labels }) => [name, labels]));
    const used = [...RULES.matchAll(/(tagferry_\w+)(?:\{([^}]*)\})?/g)].filter(
      ([name]) => !name.startsWith('tagferry.'),
    );
    expect(used.length).toBeGreaterThan(20);
    for (const [, name, matchers] of used) {
      const labels = names.get(name!);
      expect(labels, name).toBeDefined();
      for (const [, label] of (matchers ?? '').matchAll(/(\w+)\s*(?:=~|!=|!~|=)/g))
        expect(labels, name).toContain(label);
    }
  });
});
