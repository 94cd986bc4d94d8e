import { PERMISSION_TYPES, type PermissionType } from '../../contract/permissions.ts';
import type { Grant } from '../site/records.ts';
import type { SiteModel } from '../site/site-model.ts';
import { INHERITANCE, type InheritanceRule, lineage, type PermitableRef } from './inheritance.ts';

/**
 * Who may do what with which object (platform 2.2): direct grants to users and usergroups, and what is inherited along
 * `inheritance.ts`. Inherited permissions are never stored: they are worked out each time, so they end with the
 * relation and a second path keeps them, as the spec wants.
 *
 * A *block* is the sandbox's own device and no part of the spec: it makes one user lose types on an object whatever it
 * inherits, so that a test can take away one asset without taking apart the site.
 */
export class PermissionRegistry {
  readonly #site: SiteModel;
  readonly #rules: readonly InheritanceRule[];
  readonly #blocks = new Set<string>();
  #byPermitable: { version: number; grants: Map<string, Grant[]> } | undefined;

  constructor(site: SiteModel, rules: readonly InheritanceRule[] = INHERITANCE) {
    this.#site = site;
    this.#rules = rules;
  }

  /** Whether the user has this permission on the object, directly, by a group or by inheritance. */
  may(user: number, type: PermissionType, object: PermitableRef): boolean {
    const blocked = (at: PermitableRef) => this.#blocks.has(blockName(user, type, at));
    const stop = this.#blocks.size === 0 ? undefined : blocked;
    for (const at of lineage(this.#site, object, stop, this.#rules)) {
      for (const grant of this.#on(at)) if (grant.types.includes(type) && this.#isFor(grant, user)) return true;
    }
    return false;
  }

  /** Everybody who has: the object's lineage is walked once for all of them. */
  usersWho(type: PermissionType, object: PermitableRef): ReadonlySet<number> {
    const users = new Set<number>();
    for (const at of lineage(this.#site, object, undefined, this.#rules)) {
      for (const { types, assignable } of this.#on(at)) {
        if (!types.includes(type)) continue;
        if (assignable.type === 'User') users.add(assignable.id);
        else for (const member of this.#site.get('usergroups', assignable.id)?.members ?? []) users.add(member);
      }
    }
    if (this.#blocks.size > 0) for (const user of users) if (!this.may(user, type, object)) users.delete(user);
    return users;
  }

  /** Adds types to the pair's one record, which is made where there is none. */
  grant(assignable: Grant['assignable'], permitable: PermitableRef, types: readonly PermissionType[]): Grant {
    const record =
      this.find(assignable, permitable) ??
      this.#site.put('permissions', { id: this.#site.newId(), assignable, permitable: { ...permitable }, types: [] });
    record.types = inOrder([...record.types, ...types]);
    return record;
  }

  /** Sets a record's types; none deletes the record. */
  setTypes(record: Grant, types: readonly PermissionType[]): void {
    record.types = inOrder(types);
    if (record.types.length === 0) this.#site.delete('permissions', record.id);
  }

  find(assignable: Grant['assignable'], permitable: PermitableRef): Grant | undefined {
    return this.#on(permitable).find(
      (grant) => grant.assignable.type === assignable.type && grant.assignable.id === assignable.id,
    );
  }

  of(permitable: PermitableRef): Grant[] {
    return [...this.#on(permitable)];
  }

  block(user: number, object: PermitableRef, types: readonly PermissionType[]): void {
    for (const type of types) this.#blocks.add(blockName(user, type, object));
  }

  unblock(user: number, object: PermitableRef, types: readonly PermissionType[]): void {
    for (const type of types) this.#blocks.delete(blockName(user, type, object));
  }

  blocks(): string[] {
    return [...this.#blocks];
  }

  restoreBlocks(names: readonly string[]): void {
    for (const name of names) this.#blocks.add(name);
  }

  #isFor({ assignable }: Grant, user: number): boolean {
    if (assignable.type === 'User') return assignable.id === user;
    return this.#site.get('usergroups', assignable.id)?.members.includes(user) === true;
  }

  /** The grants on one object: all of them are looked at once after a change of the site, not once a question. */
  #on({ type, id }: PermitableRef): readonly Grant[] {
    if (this.#byPermitable?.version !== this.#site.version) {
      const grants = new Map<string, Grant[]>();
      for (const grant of this.#site.all('permissions')) {
        const name = `${grant.permitable.type}/${grant.permitable.id}`;
        const list = grants.get(name);
        if (list === undefined) grants.set(name, [grant]);
        else list.push(grant);
      }
      this.#byPermitable = { version: this.#site.version, grants };
    }
    return this.#byPermitable.grants.get(`${type}/${id}`) ?? [];
  }
}

/** Each type once, in the spec's order. */
function inOrder(types: readonly PermissionType[]): PermissionType[] {
  return PERMISSION_TYPES.filter((type) => types.includes(type));
}

function blockName(user: number, type: PermissionType, object: PermitableRef): string {
  return `${user} ${type} ${object.type}/${object.id}`;
}
