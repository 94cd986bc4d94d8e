import { PERMISSION_TYPES, type PermissionType } from '../../contract/permissions.ts';
import { refusal } from '../http/refusal.ts';
import type { User } from '../site/records.ts';
import type { SiteModel } from '../site/site-model.ts';
import type { PermitableRef } from './inheritance.ts';
import type { PermissionRegistry } from './permission-registry.ts';
import type { Visibility } from './visibility.ts';

export interface PermissionAdminOptions {
  /** E-mail or id; the technical user of the first client application unless given. */
  user?: number | string;
  /** All four unless given. */
  types?: readonly PermissionType[];
}

/** Gives and takes permissions from behind the scenes, without anyone's `can_permit`; what comes in sight and goes out of it is announced. */
export class PermissionAdmin {
  readonly #site: SiteModel;
  readonly #registry: PermissionRegistry;
  readonly #visibility: Visibility;
  readonly #report: (sentence: string) => void;

  constructor(
    site: SiteModel,
    registry: PermissionRegistry,
    visibility: Visibility,
    report: (sentence: string) => void,
  ) {
    this.#site = site;
    this.#registry = registry;
    this.#visibility = visibility;
    this.#report = report;
  }

  /** A user by id or e-mail; the first client application's technical user unless given. 404 where there is none. */
  user(who?: number | string): User {
    const wanted = who ?? this.#site.all('client_applications')[0]?.technical_user;
    const found =
      typeof wanted === 'string' ? this.#site.userByEmail(wanted) : this.#site.get('users', wanted ?? Number.NaN);
    if (!found) throw refusal(404, `user ${who ?? ''} was not found`);
    return found;
  }

  /** Gives permissions and lifts a block. */
  grant(on: PermitableRef, options: PermissionAdminOptions = {}): void {
    const user = this.user(options.user);
    const types = options.types ?? PERMISSION_TYPES;
    this.#visibility.during(() => {
      this.#registry.unblock(user.id, on, types);
      this.#registry.grant({ type: 'User', id: user.id }, on, types);
    });
    this.#report(`${nameOf(user)} gets ${types.join(', ')} on ${on.type} ${on.id}`);
  }

  /**
   * Takes them away. The user loses them even where they would be inherited (a block, which `grant` lifts); with
   * `direct` only the direct grant goes and what is inherited stays, as platform 2.2 says.
   */
  take(on: PermitableRef, options: PermissionAdminOptions & { direct?: boolean } = {}): void {
    const user = this.user(options.user);
    const taken = options.types ?? PERMISSION_TYPES;
    this.#visibility.during(() => {
      const record = this.#registry.find({ type: 'User', id: user.id }, on);
      if (record) {
        this.#registry.setTypes(
          record,
          record.types.filter((type) => !taken.includes(type)),
        );
      }
      if (options.direct !== true) this.#registry.block(user.id, on, taken);
    });
    this.#report(`${nameOf(user)} loses ${taken.join(', ')} on ${on.type} ${on.id}`);
  }
}

function nameOf(user: User): string {
  return user.name ?? user.email;
}
