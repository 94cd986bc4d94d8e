import type { AccessEventType } from '../../contract/events.ts';
import { accessContent } from '../events/contents.ts';
import type { SiteModel } from '../site/site-model.ts';
import type { PermissionRegistry } from './permission-registry.ts';

/** Object types for which `…_appeared` and `…_disappeared` events exist (platform 6.3). */
const WATCHED = [
  { type: 'Asset', event: 'asset' },
  { type: 'Instrumentation', event: 'instrumentation' },
  { type: 'Node', event: 'node' },
] as const;

interface Seen {
  user: number;
  event: (typeof WATCHED)[number]['event'];
  id: number;
}

export interface VisibilityChange {
  eventType: AccessEventType;
  user: number;
  content: Record<string, unknown>;
}

/**
 * Announces objects that became visible or invisible to technical users (platform 6.3: `…_appeared`, `…_disappeared`).
 * Compares the readable objects of each user before and after a change, so no special rules are required for children,
 * groups and multiple paths.
 */
export class Visibility {
  readonly #site: SiteModel;
  readonly #registry: PermissionRegistry;
  readonly #announce: (change: VisibilityChange) => void;

  constructor(site: SiteModel, registry: PermissionRegistry, announce: (change: VisibilityChange) => void) {
    this.#site = site;
    this.#registry = registry;
    this.#announce = announce;
  }

  /**
   * Runs a change and announces the objects that appeared or disappeared as a result. Deleted objects are not announced
   * here (platform 6.3).
   */
  during<Result>(change: () => Result): Result {
    const before = this.#visible();
    const result = change();
    this.#site.relationsChanged();
    const after = this.#visible();
    for (const [name, entry] of before) {
      if (!after.has(name) && this.#site.get(`${entry.event}s`, entry.id)) this.#announceOne(entry, 'disappeared');
    }
    for (const [name, entry] of after) if (!before.has(name)) this.#announceOne(entry, 'appeared');
    return result;
  }

  #announceOne({ user, event, id }: Seen, what: 'appeared' | 'disappeared'): void {
    const content = accessContent(this.#site, event, id, user, what === 'appeared');
    this.#announce({ eventType: `${event}_${what}`, user, content });
  }

  #visible(): Map<string, Seen> {
    const seen = new Map<string, Seen>();
    const technical = new Set(this.#site.all('users').flatMap((user) => (user.technical ? [user.id] : [])));
    for (const { type, event } of WATCHED) {
      for (const { id } of this.#site.all(`${event}s`)) {
        for (const user of this.#registry.usersWho('can_read', { type, id })) {
          if (technical.has(user)) seen.set(`${user} ${type}/${id}`, { user, event, id });
        }
      }
    }
    return seen;
  }
}
