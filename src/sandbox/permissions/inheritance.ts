import type { PermitableType } from '../../contract/permissions.ts';
import type { SiteModel } from '../site/site-model.ts';

export interface PermitableRef {
  type: PermitableType;
  id: number;
}

/**
 * Returns the objects from which an asset directly inherits permissions. According to the examples in the
 * specification, these are its instrumentations and nodes (platform 2.2) and its parent (platform 6.3,
 * asset_disappeared "also for all child assets"). Other object types inherit no permissions.
 */
function sourcesOf(site: SiteModel, { type, id }: PermitableRef): PermitableRef[] {
  if (type !== 'Asset') return [];
  const parent = site.get('assets', id)?.parent;
  return [
    ...site.holdersOf('instrumentations', id).map((holder) => ({ type: 'Instrumentation' as const, id: holder.id })),
    ...site.holdersOf('nodes', id).map((holder) => ({ type: 'Node' as const, id: holder.id })),
    ...(parent === undefined ? [] : [{ type: 'Asset' as const, id: parent }]),
  ];
}

/**
 * Yields the object and all objects from which it inherits permissions, nearest first and without duplicates. Does not
 * follow objects for which `stop` returns true.
 */
export function* lineage(site: SiteModel, start: PermitableRef, stop?: (object: PermitableRef) => boolean) {
  const seen = new Set<string>([`${start.type}/${start.id}`]);
  const queue: PermitableRef[] = [start];
  for (let next = queue.shift(); next !== undefined; next = queue.shift()) {
    if (stop?.(next)) continue;
    yield next;
    for (const source of sourcesOf(site, next)) {
      const name = `${source.type}/${source.id}`;
      if (seen.has(name)) continue;
      seen.add(name);
      queue.push(source);
    }
  }
}
