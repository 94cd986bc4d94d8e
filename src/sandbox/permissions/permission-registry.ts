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

  constructor(site: SiteModel, rules: readonly InheritanceRule[] = INHERITANCE) {
    this.#site = site;
    this.#rules = rules;
  }

  /** Whether the user has this permission on the object, directly, by a group or by inheritance. */
  may(user: number, type: PermissionType, object: PermitableRef): boolean {
    const assignables = this.#assignables(user);
    const grants = this.#site.all('permissions').filter((grant) => grant.types.includes(type) && assignables(grant));
    if (grants.length === 0) return false;
    const blocked = (at: PermitableRef) => this.#blocks.has(blockName(user, type, at));
    for (const at of lineage(this.#site, object, blocked, this.#rules)) {
      if (grants.some((grant) => grant.permitable.type === at.type && grant.permitable.id === at.id)) return true;
    }
    return false;
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
    return this.#site
      .all('permissions')
      .find(
        (grant) =>
          grant.assignable.type === assignable.type &&
          grant.assignable.id === assignable.id &&
          grant.permitable.type === permitable.type &&
          grant.permitable.id === permitable.id,
      );
  }

  of(permitable: PermitableRef): Grant[] {
    return this.#site
      .all('permissions')
      .filter((grant) => grant.permitable.type === permitable.type && grant.permitable.id === permitable.id);
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

  #assignables(user: number): (grant: Grant) => boolean {
    const groups = new Set(
      this.#site
        .all('usergroups')
        .filter((group) => group.members.includes(user))
        .map((group) => group.id),
    );
    return (grant) =>
      grant.assignable.type === 'User' ? grant.assignable.id === user : groups.has(grant.assignable.id);
  }
}

/** Each type once, in the spec's order. */
function inOrder(types: readonly PermissionType[]): PermissionType[] {
  return PERMISSION_TYPES.filter((type) => types.includes(type));
}

function blockName(user: number, type: PermissionType, object: PermitableRef): string {
  return `${user} ${type} ${object.type}/${object.id}`;
}
