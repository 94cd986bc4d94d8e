import { readFileSync } from 'node:fs';
import { join } from 'node:path';
import { describe, expect, it } from 'vitest';

const ROOT = join(import.meta.dirname, '../..');
const METRICS = readFileSync(join(ROOT, 'docs/reference/metrics.md'), 'utf8');

interface Panel {
  id: number;
  type: string;
  title: string;
  gridPos: { x: number; y: number; w: number; h: number };
  datasource?: { type: string; uid: string };
  targets?: { expr: string; legendFormat: string }[];
}

const dashboard = JSON.parse(readFileSync(join(ROOT, 'config/monitoring/tagferry.dashboard.json'), 'utf8')) as {
  uid: string;
  id?: number;
  title: string;
  schemaVersion: number;
  panels: Panel[];
  templating: { list: { name: string; type: string; definition?: string }[] };
  annotations: { list: { expr: string }[] };
};
const targets = dashboard.panels.flatMap((panel) =>
  (panel.targets ?? []).map((target) => ({ ...target, panel: panel.title })),
);
const variables = dashboard.templating.list;
const expressions = [...targets, ...dashboard.annotations.list].map(({ expr }) => expr);

/** Metrics in docs/reference/metrics.md: type and labels by name. */
const documented = new Map(
  [...METRICS.matchAll(/^\| `(tagferry_\w+)` \| (\w+) \| ([^|]*)\|/gm)].map(([, name, type, labels]) => [
    name!,
    { type: type!, labels: [...labels!.matchAll(/`(\w+)`/g)].map((match) => match[1]!) },
  ]),
);
/** Labels that Prometheus adds to every scrape. */
const SCRAPED = ['job', 'instance'];

describe('Grafana dashboard', () => {
  it('shows exactly the metrics of docs/reference/metrics.md', () => {
    const shown = new Set(expressions.flatMap((expr) => expr.match(/tagferry_\w+/g) ?? []));
    expect(documented.size).toBeGreaterThan(40);
    expect([...shown].sort()).toEqual([...documented.keys()].sort());
  });

  it('queries only existing labels, and uses only variables that it defines', () => {
    const names = variables.map(({ name }) => name);
    for (const expr of expressions) {
      const of = [...expr.matchAll(/(tagferry_\w+)\{([^}]*)\}/g)];
      const known = [...SCRAPED, ...of.flatMap(([, name]) => documented.get(name!)!.labels)];
      expect(of.length, expr).toBe((expr.match(/tagferry_\w+/g) ?? []).length);
      for (const [, label] of expr.matchAll(/(\w+)\s*=~/g)) expect(known, expr).toContain(label);
      for (const [, by] of expr.matchAll(/by \(([^)]*)\)/g)) {
        for (const label of by!.split(', ')) expect(known, expr).toContain(label);
      }
      for (const [, name] of expr.matchAll(/\$(\w+)/g)) expect([...names, '__rate_interval']).toContain(name);
    }
  });

  it('uses only legend labels that the query keeps', () => {
    for (const { expr, legendFormat } of targets) {
      const kept = [...expr.matchAll(/by \(([^)]*)\)/g)].flatMap(([, by]) => by!.split(', '));
      for (const [, label] of legendFormat.matchAll(/\{\{(\w+)\}\}/g)) expect(kept, expr).toContain(label);
    }
  });

  it('applies rate functions only to counters', () => {
    for (const expr of expressions) {
      for (const [whole, name] of expr.matchAll(/(tagferry_\w+)\{[^}]*\}/g)) {
        const isRated = expr.includes(`rate(${whole}`) || expr.includes(`increase(${whole}`);
        expect(isRated, expr).toBe(documented.get(name!)!.type === 'counter');
      }
    }
  });

  it('can be provisioned, with a name, no database id, and the data source as a variable', () => {
    expect(dashboard).toMatchObject({ uid: 'tagferry', title: 'tagferry' });
    expect(dashboard.id ?? null).toBeNull();
    expect(dashboard).not.toHaveProperty('__inputs');
    expect(variables.map(({ name, type }) => `${name} ${type}`)).toEqual([
      'datasource datasource',
      'job query',
      'instance query',
    ]);
    for (const { type, title, datasource } of dashboard.panels) {
      if (type !== 'row') expect(datasource, title).toEqual({ type: 'prometheus', uid: '$datasource' });
    }
  });

  it('has panels that do not overlap, within 24 columns', () => {
    const taken = new Map<string, string>();
    expect(new Set(dashboard.panels.map(({ id }) => id)).size).toBe(dashboard.panels.length);
    for (const { title, gridPos } of dashboard.panels) {
      expect(gridPos.x + gridPos.w, title).toBeLessThanOrEqual(24);
      for (let x = gridPos.x; x < gridPos.x + gridPos.w; x++) {
        for (let y = gridPos.y; y < gridPos.y + gridPos.h; y++) {
          expect(taken.get(`${x} ${y}`), title).toBeUndefined();
          taken.set(`${x} ${y}`, title);
        }
      }
    }
  });
});
