import { PERMISSION_TYPES, type PermissionType } from '../../contract/permissions.ts';
import { refusal } from '../http/refusal.ts';
import type { Plant } from '../plant/plant.ts';
import type { User } from '../plant/records.ts';
import type { PermitableRef } from './inheritance.ts';
import type { PermissionBook } from './permission-book.ts';
import type { Visibility } from './visibility.ts';

export interface HandOptions {
  /** E-mail or id; the technical user of the first client application unless told. */
  user?: number | string;
  /** All four unless told. */
  types?: readonly PermissionType[];
}

/** Gives and takes permissions from behind the scenes, without anyone's `can_permit`; what comes in sight and goes out of it is announced. */
export class PermissionHand {
  readonly #plant: Plant;
  readonly #book: PermissionBook;
  readonly #visibility: Visibility;
  readonly #told: (sentence: string) => void;

  constructor(plant: Plant, book: PermissionBook, visibility: Visibility, told: (sentence: string) => void) {
    this.#plant = plant;
    this.#book = book;
    this.#visibility = visibility;
    this.#told = told;
  }

  /** A user by id or e-mail; the first client application's technical user unless told. 404 where there is none. */
  user(who?: number | string): User {
    const wanted = who ?? this.#plant.all('client_applications')[0]?.technical_user;
    const found =
      typeof wanted === 'string' ? this.#plant.userByEmail(wanted) : this.#plant.get('users', wanted ?? Number.NaN);
    if (!found) throw refusal(404, `user ${who ?? ''} was not found`);
    return found;
  }

  /** Gives permissions and lifts a block. */
  grant(on: PermitableRef, options: HandOptions = {}): void {
    const user = this.user(options.user);
    const types = options.types ?? PERMISSION_TYPES;
    this.#visibility.during(() => {
      this.#book.unblock(user.id, on, types);
      this.#book.grant({ type: 'User', id: user.id }, on, types);
    });
    this.#told(`${nameOf(user)} gets ${types.join(', ')} on ${on.type} ${on.id}`);
  }

  /**
   * Takes them away. The user loses them even where they would be inherited (a block, which `grant` lifts); with
   * `direct` only the direct grant goes and what is inherited stays, as spec 2.2 says.
   */
  take(on: PermitableRef, options: HandOptions & { direct?: boolean } = {}): void {
    const user = this.user(options.user);
    const taken = options.types ?? PERMISSION_TYPES;
    this.#visibility.during(() => {
      const record = this.#book.find({ type: 'User', id: user.id }, on);
      if (record) {
        this.#book.setTypes(
          record,
          record.types.filter((type) => !taken.includes(type)),
        );
      }
      if (options.direct !== true) this.#book.block(user.id, on, taken);
    });
    this.#told(`${nameOf(user)} loses ${taken.join(', ')} on ${on.type} ${on.id}`);
  }
}

function nameOf(user: User): string {
  return user.name ?? user.email;
}
