import type { PermitableType } from '../../contract/permissions.ts';
import type { SiteModel } from '../site/site-model.ts';

export interface PermitableRef {
  type: PermitableType;
  id: number;
}

/** One way by which a permission on `from` also holds for `to`. */
export interface InheritanceRule {
  from: PermitableType;
  to: PermitableType;
  because: string;
  /** The objects of type `from` that the object `id` of type `to` inherits from. */
  sources(site: SiteModel, id: number): number[];
}

/**
 * The model graph of inheritance. The spec shows its edges only by example (2.2, 6.3) and says "not shown" of the
 * whole: these are the ones it names. The option `inheritance` chooses among them; a new edge is one more entry here.
 *
 * | a permission on | holds for            | spec |
 * |-----------------|----------------------|------|
 * | Instrumentation | assets assigned to it | 2.2 "on all assets assigned to that instrumentation" |
 * | Node            | assets under it       | 2.2 "an asset under two nodes" |
 * | Asset           | its child assets      | 6.3 asset_disappeared "also for all child assets" |
 */
export const INHERITANCE: readonly InheritanceRule[] = [
  {
    from: 'Instrumentation',
    to: 'Asset',
    because: 'assigned to the instrumentation',
    sources: (site, id) => site.holdersOf('instrumentations', id).map((holder) => holder.id),
  },
  {
    from: 'Node',
    to: 'Asset',
    because: 'under the node',
    sources: (site, id) => site.holdersOf('nodes', id).map((holder) => holder.id),
  },
  {
    from: 'Asset',
    to: 'Asset',
    because: 'child of the asset',
    sources: (site, id) => {
      const parent = site.get('assets', id)?.parent;
      return parent === undefined ? [] : [parent];
    },
  },
];

/** The name of a rule: `Node>Asset`. */
export function ruleName(rule: Pick<InheritanceRule, 'from' | 'to'>): string {
  return `${rule.from}>${rule.to}`;
}

/** The rules of these names, all of them unless given. Throws `Error` for a name that no rule has. */
export function chosenRules(names: readonly string[] | undefined): readonly InheritanceRule[] {
  if (names === undefined) return INHERITANCE;
  const unknown = names.find((name) => !INHERITANCE.some((rule) => ruleName(rule) === name));
  if (unknown !== undefined) {
    throw new Error(`there is no inheritance ${unknown}, only ${INHERITANCE.map(ruleName).join(', ')}`);
  }
  return INHERITANCE.filter((rule) => names.includes(ruleName(rule)));
}

/** The object itself and everything it inherits from, nearest first, each once (parents in a circle end the walk). */
export function* lineage(
  site: SiteModel,
  start: PermitableRef,
  stop?: (object: PermitableRef) => boolean,
  rules: readonly InheritanceRule[] = INHERITANCE,
) {
  const seen = new Set<string>([`${start.type}/${start.id}`]);
  const queue: PermitableRef[] = [start];
  for (let next = queue.shift(); next !== undefined; next = queue.shift()) {
    if (stop?.(next)) continue;
    yield next;
    for (const rule of rules) {
      if (rule.to !== next.type) continue;
      for (const id of rule.sources(site, next.id)) {
        const name = `${rule.from}/${id}`;
        if (seen.has(name)) continue;
        seen.add(name);
        queue.push({ type: rule.from, id });
      }
    }
  }
}
