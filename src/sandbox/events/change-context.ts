import type { EventType } from '../../contract/events.ts';
import { notFound, refusal } from '../http/refusal.ts';
import type { PermitableRef } from '../permissions/inheritance.ts';
import type { PermissionRegistry } from '../permissions/permission-registry.ts';
import type { Visibility } from '../permissions/visibility.ts';
import type { SandboxClock } from '../sandbox-clock.ts';
import type { Kind, Owner, SiteRecords } from '../site/records.ts';
import type { SiteModel } from '../site/site-model.ts';
import type { Announcer } from './announcer.ts';

export interface ChangeParts {
  site: SiteModel;
  registry: PermissionRegistry;
  owners: Owner[];
  visibility: Visibility;
  announcer: Announcer;
  clock: SandboxClock;
  /** What happened, in a sentence for the request log. */
  report(sentence: string): void;
}

type Content = Record<string, unknown>;

/** What every change of the site needs: to find its objects (404 where there are none) and to tell who may hear of it. */
export class ChangeContext {
  readonly site: SiteModel;
  readonly registry: PermissionRegistry;
  readonly owners: Owner[];
  readonly visibility: Visibility;
  readonly announcer: Announcer;
  readonly clock: SandboxClock;
  readonly report: (sentence: string) => void;

  constructor(parts: ChangeParts) {
    this.site = parts.site;
    this.registry = parts.registry;
    this.owners = parts.owners;
    this.visibility = parts.visibility;
    this.announcer = parts.announcer;
    this.clock = parts.clock;
    this.report = parts.report;
  }

  found<K extends Kind>(kind: K, id: number): SiteRecords[K] {
    if (!Number.isSafeInteger(id)) throw refusal(400, `${kind} are named by a number`);
    const record = this.site.get(kind, id);
    if (!record) throw notFound(`${kind} ${id}`);
    return record;
  }

  /** ISO 8601, by the sandbox's clock. */
  now(): string {
    return new Date(this.clock.wallMs()).toISOString();
  }

  mayRead(user: number, object: PermitableRef): boolean {
    return this.registry.may(user, 'can_read', object);
  }

  /** Tells technical users that may read the object (platform 6.1). */
  tell(type: EventType, object: PermitableRef, content: (names: readonly string[] | undefined) => Content | undefined) {
    this.announcer.announce({ type, audience: (user) => this.mayRead(user, object), content });
  }
}

/** Takes an id out of a relation. */
export function drop(list: number[], id: number): void {
  const index = list.indexOf(id);
  if (index >= 0) list.splice(index, 1);
}

/** Whether two members of records are the same, however they were made. */
export function isSame(a: unknown, b: unknown): boolean {
  return JSON.stringify(a ?? null) === JSON.stringify(b ?? null);
}
