import { PERMISSION_TYPES, type PermissionType } from '../../contract/permissions.ts';
import { notFound, refusal } from '../http/refusal.ts';
import type { Grant, Owner } from '../site/records.ts';
import type { SiteModel } from '../site/site-model.ts';
import { lineage, type PermitableRef } from './inheritance.ts';

/**
 * Permissions of users on objects (platform 2.2): direct grants to users and usergroups, and permissions inherited
 * according to `inheritance.ts`. Inherited permissions are computed, not stored. They end when the relation ends,
 * unless they are also inherited through a different relation.
 *
 * A *block* is specific to the sandbox: it removes permission types of one user on an object, including inherited
 * permissions, so that a test can revoke access to one asset without changing the site.
 */
export class PermissionRegistry {
  readonly #site: SiteModel;
  readonly #blocks = new Set<string>();
  #byPermitable: { version: number; grants: Map<string, Grant[]> } | undefined;

  #owners: readonly Owner[];

  constructor(site: SiteModel, owners: readonly Owner[]) {
    this.#site = site;
    this.#owners = owners;
  }

  get owners(): readonly Owner[] {
    return this.#owners;
  }

  addOwner(owner: Owner): void {
    if (!this.#owners.some((one) => isSameOwner(one, owner))) this.#owners = [...this.#owners, owner];
  }

  /** Removes the owners for which `ends` returns true. Returns whether any was removed. */
  removeOwners(ends: (owner: Owner) => boolean): boolean {
    const before = this.#owners.length;
    this.#owners = this.#owners.filter((owner) => !ends(owner));
    return this.#owners.length < before;
  }

  /**
   * Returns whether the user has this permission on the object, either directly, through a group, or by inheritance.
   */
  may(user: number, type: PermissionType, object: PermitableRef): boolean {
    const blocked = (at: PermitableRef) => this.#blocks.has(blockName(user, type, at));
    const stop = this.#blocks.size === 0 ? undefined : blocked;
    for (const at of lineage(this.#site, object, stop)) {
      for (const grant of this.#on(at)) if (grant.types.includes(type) && this.#isFor(grant, user)) return true;
    }
    return false;
  }

  /**
   * Throws a refusal if the user lacks a permission type on an object: 403 if the user can read the object, otherwise
   * 404. Permission types are independent (platform 2.2): the required type is sufficient, even without `can_read`.
   */
  require(user: number, type: PermissionType, object: PermitableRef): void {
    const exists = this.#site.hasPermitable(object.type, object.id);
    if (exists && this.may(user, type, object)) return;
    if (!exists || !this.may(user, 'can_read', object)) throw notFound(`${object.type} ${object.id}`);
    throw refusal(403, `the user has no ${type} on this ${object.type}`);
  }

  /** Returns all users with this permission on the object. */
  usersWho(type: PermissionType, object: PermitableRef): ReadonlySet<number> {
    const users = new Set<number>();
    for (const at of lineage(this.#site, object)) {
      for (const { types, assignable } of this.#on(at)) {
        if (!types.includes(type)) continue;
        if (assignable.type === 'User') users.add(assignable.id);
        else for (const member of this.#site.get('usergroups', assignable.id)?.members ?? []) users.add(member);
      }
    }
    if (this.#blocks.size > 0) for (const user of users) if (!this.may(user, type, object)) users.delete(user);
    return users;
  }

  /** Adds permission types to the record for the pair. Creates the record if necessary. */
  grant(assignable: Grant['assignable'], permitable: PermitableRef, types: readonly PermissionType[]): Grant {
    const record =
      this.find(assignable, permitable) ??
      this.#site.put('permissions', { id: this.#site.newId(), assignable, permitable: { ...permitable }, types: [] });
    record.types = inOrder([...record.types, ...types]);
    return record;
  }

  /** Sets the permission types in a record. If the list is empty, deletes the record. */
  setTypes(record: Grant, types: readonly PermissionType[]): void {
    record.types = inOrder(types);
    if (record.types.length === 0) this.#site.delete('permissions', record.id);
  }

  find(assignable: Grant['assignable'], permitable: PermitableRef): Grant | undefined {
    return this.#on(permitable).find(
      (grant) => grant.assignable.type === assignable.type && grant.assignable.id === assignable.id,
    );
  }

  block(user: number, object: PermitableRef, types: readonly PermissionType[]): void {
    for (const type of types) this.#blocks.add(blockName(user, type, object));
  }

  unblock(user: number, object: PermitableRef, types: readonly PermissionType[]): void {
    for (const type of types) this.#blocks.delete(blockName(user, type, object));
  }

  #isFor({ assignable }: Grant, user: number): boolean {
    if (assignable.type === 'User') return assignable.id === user;
    return this.#site.get('usergroups', assignable.id)?.members.includes(user) === true;
  }

  /** Returns the grants on an object from an index, which is rebuilt after the site has changed. */
  #on({ type, id }: PermitableRef): readonly Grant[] {
    if (this.#byPermitable?.version !== this.#site.version) {
      const grants = Map.groupBy(this.#site.all('permissions'), ({ permitable: { type, id } }) => `${type}/${id}`);
      this.#byPermitable = { version: this.#site.version, grants };
    }
    return this.#byPermitable.grants.get(`${type}/${id}`) ?? [];
  }
}

export function isSameOwner(a: Owner, b: Owner): boolean {
  return a.user === b.user && a.permitable.type === b.permitable.type && a.permitable.id === b.permitable.id;
}

/** Returns the types without duplicates, in the order used in the specification. */
function inOrder(types: readonly PermissionType[]): PermissionType[] {
  return PERMISSION_TYPES.filter((type) => types.includes(type));
}

function blockName(user: number, type: PermissionType, object: PermitableRef): string {
  return `${user} ${type} ${object.type}/${object.id}`;
}
