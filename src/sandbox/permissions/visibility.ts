import type { AccessEventType } from '../../contract/events.ts';
import type { SiteModel } from '../site/site-model.ts';
import type { PermissionRegistry } from './permission-registry.ts';

/** The types whose coming and going platform 6.3 announces. */
const WATCHED = [
  { type: 'Asset', kind: 'assets', event: 'asset' },
  { type: 'Instrumentation', kind: 'instrumentations', event: 'instrumentation' },
  { type: 'Node', kind: 'nodes', event: 'node' },
] as const;

export interface VisibilityChange {
  eventType: AccessEventType;
  user: number;
  content: Record<string, unknown>;
}

/**
 * Tells what technical users begin and cease to see (platform 6.3: `…_appeared`, `…_disappeared`). It compares what each of
 * them may read before and after a change, whatever the change was: a grant, a relation that ended, a group's member.
 * So children, second paths and groups need no rule of their own here.
 */
export class Visibility {
  readonly #site: SiteModel;
  readonly #registry: PermissionRegistry;
  readonly #tell: (change: VisibilityChange) => void;

  constructor(site: SiteModel, registry: PermissionRegistry, tell: (change: VisibilityChange) => void) {
    this.#site = site;
    this.#registry = registry;
    this.#tell = tell;
  }

  /** Runs a change and announces what it made appear and disappear. Destroyed objects are not announced here (platform 6.3). */
  during<Result>(change: () => Result): Result {
    const before = this.#seen();
    const result = change();
    this.#site.relationsChanged();
    const after = this.#seen();
    for (const [name, entry] of before) {
      if (after.has(name) || !this.#exists(entry)) continue;
      this.#tell({ eventType: `${entry.event}_disappeared`, user: entry.user, content: this.#content(entry, false) });
    }
    for (const [name, entry] of after) {
      if (before.has(name)) continue;
      this.#tell({ eventType: `${entry.event}_appeared`, user: entry.user, content: this.#content(entry, true) });
    }
    return result;
  }

  /** Platform 6.3, the content of an access event: an asset with its serial number, an instrumentation with its tag, a node with tag or, when lost, name. */
  assetContent(id: number, user: number): Record<string, unknown> {
    const asset = this.#site.get('assets', id);
    return {
      asset: { id, serial_number: asset?.serial_number ?? '', href: this.#site.reference('assets', id).href },
      user: this.#site.reference('users', user),
    };
  }

  #content(entry: Seen, appeared: boolean): Record<string, unknown> {
    if (entry.event === 'asset') return this.assetContent(entry.id, entry.user);
    const user = this.#site.reference('users', entry.user);
    if (entry.event === 'instrumentation') {
      const { id, href } = this.#site.reference('instrumentations', entry.id);
      return { instrumentation: { id, tag: this.#site.get('instrumentations', id)?.tag ?? '', href }, user };
    }
    const { id, href } = this.#site.reference('nodes', entry.id);
    const node = this.#site.get('nodes', id);
    return { node: appeared ? { id, tag: node?.tag ?? '', href } : { id, name: node?.name ?? '', href }, user };
  }

  #exists(entry: Seen): boolean {
    return this.#site.get(entry.kind, entry.id) !== undefined;
  }

  #seen(): Map<string, Seen> {
    const seen = new Map<string, Seen>();
    const technical = new Set(this.#site.all('users').flatMap((user) => (user.technical ? [user.id] : [])));
    for (const { type, kind, event } of WATCHED) {
      for (const { id } of this.#site.all(kind)) {
        for (const user of this.#registry.usersWho('can_read', { type, id })) {
          if (technical.has(user)) seen.set(`${user} ${type}/${id}`, { user, kind, event, id });
        }
      }
    }
    return seen;
  }
}

interface Seen {
  user: number;
  kind: (typeof WATCHED)[number]['kind'];
  event: (typeof WATCHED)[number]['event'];
  id: number;
}
