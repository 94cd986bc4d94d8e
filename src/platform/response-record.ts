import { PlatformError } from '../base/errors.ts';
import { foreignWords } from './response-body.ts';

interface CallName {
  method: string;
  path: string;
}

/**
 * Validating accessor for a JSON object in a response. Each method checks one member and throws `platform.unreadable`
 * with the call and the member path if the member is invalid. IDs may be numbers or decimal strings.
 */
export class ResponseRecord {
  readonly #call: CallName;
  readonly #place: string;
  readonly #members: Record<string, unknown>;

  /** `place`: path of the value, used in errors; empty for the body itself. */
  constructor(call: CallName, value: unknown, place = '') {
    this.#call = call;
    this.#place = place;
    if (typeof value !== 'object' || value === null || Array.isArray(value)) {
      throw this.#unexpected(place === '' ? 'the body' : place, 'an object');
    }
    this.#members = value as Record<string, unknown>;
  }

  /**
   * Returns a single record from the body or its member `wrapper`, because the specification does not show which one
   * contains it.
   */
  static single(call: CallName, body: unknown, wrapper: string): ResponseRecord {
    const record = new ResponseRecord(call, body);
    return record.has(wrapper) ? record.record(wrapper) : record;
  }

  /** Returns whether the member is present and not null. */
  has(member: string): boolean {
    return Object.hasOwn(this.#members, member) && (this.#members[member] ?? null) !== null;
  }

  integer(member: string): number {
    const value = this.#members[member];
    if (typeof value === 'number' && Number.isSafeInteger(value)) return value;
    if (typeof value === 'string' && /^\d{1,15}$/.test(value)) return Number(value);
    throw this.#unexpected(this.#at(member), 'an integer');
  }

  string(member: string): string {
    const value = this.#members[member];
    if (typeof value !== 'string') throw this.#unexpected(this.#at(member), 'a string');
    return value;
  }

  /** Returns false if the member is absent. */
  boolean(member: string): boolean {
    if (!this.has(member)) return false;
    const value = this.#members[member];
    if (typeof value !== 'boolean') throw this.#unexpected(this.#at(member), 'a boolean');
    return value;
  }

  strings(member: string): string[] {
    const value = this.#members[member];
    if (!Array.isArray(value) || !value.every((one) => typeof one === 'string')) {
      throw this.#unexpected(this.#at(member), 'an array of strings');
    }
    return value;
  }

  record(member: string): ResponseRecord {
    return new ResponseRecord(this.#call, this.#members[member], this.#at(member));
  }

  /** Returns the result of `read` if the member is present. */
  optional<Value>(member: string, read: (member: string) => Value): Value | undefined {
    return this.has(member) ? read.call(this, member) : undefined;
  }

  get names(): string[] {
    return Object.keys(this.#members);
  }

  #at(member: string): string {
    return this.#place === '' ? member : `${this.#place}.${member}`;
  }

  #unexpected(place: string, expected: string): PlatformError {
    const { method, path } = this.#call;
    return new PlatformError(`unexpected response to ${method} ${path}: ${foreignWords(place)} must be ${expected}`, {
      code: 'platform.unreadable',
      retryable: true,
      hint: 'Check that PLATFORM_URL is the address of the API. If it is, report the call and the member.',
    });
  }
}
