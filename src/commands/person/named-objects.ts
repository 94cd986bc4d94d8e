import { UsageError } from '../../base/errors.ts';
import type { AssignableV1, AssignableV2, Permitable } from '../../contract/permissions.ts';

/** Parses and prints users, user groups and objects in command-line notation. */

/** Matches an e-mail address within the length limits of RFC 5321. */
const EMAIL = /^[^\s@/]{1,64}@[^\s@/]{1,255}$/;

/** Parses a v2 assignable: an e-mail address, or `usergroup/40`. */
export function assignableV2Of(text: string): AssignableV2 {
  if (EMAIL.test(text)) return { email: text, type: 'User' };
  const group = usergroupOf(text);
  if (group !== undefined) return { id: group, type: 'Usergroup' };
  const hint = 'Use the e-mail address of a user, or usergroup/40. User numbers require --v1.';
  throw new UsageError(`${JSON.stringify(text)} is not a user or user group`, hint);
}

/** Parses a v1 assignable: `user/6` or `usergroup/40`. */
export function assignableV1Of(text: string): AssignableV1 {
  const group = usergroupOf(text);
  if (group !== undefined) return { id: group, type: 'Usergroup' };
  const [, digits] = /^(?:user[/:])?(\d{1,15})$/i.exec(text) ?? [];
  if (digits !== undefined) return { id: Number(digits), type: 'User' };
  const hint = 'With --v1, use user/6 or usergroup/40. To use e-mail addresses, omit --v1.';
  throw new UsageError(`${JSON.stringify(text)} is not a user or user group`, hint);
}

/** Parses the e-mail address of an owner or member. */
export function emailOf(text: string): string {
  if (EMAIL.test(text)) return text;
  throw new UsageError(
    `${JSON.stringify(text)} is not an e-mail address`,
    'Use the e-mail address of a user. User numbers require --v1.',
  );
}

/** Parses a v1 user number. */
export function userIdOf(text: string): number {
  const assignable = assignableV1Of(text);
  if (assignable.type === 'User') return assignable.id;
  throw new UsageError(`${JSON.stringify(text)} is not a user`, 'Use user/6.');
}

/** Placeholder shown for records without a user or object. */
export const NOT_REPORTED = '(not reported)';

export function nameOfPermitable({ type, id }: Permitable): string {
  return `${type}/${id}`;
}

export function nameOfAssignable(assignable: AssignableV1 | AssignableV2 | undefined): string {
  if (assignable === undefined) return NOT_REPORTED;
  if ('email' in assignable) return assignable.email;
  return `${assignable.type.toLowerCase()}/${assignable.id}`;
}

export function isSameAssignable(a: AssignableV1 | AssignableV2 | undefined, b: AssignableV2): boolean {
  if (a === undefined || a.type !== b.type) return false;
  return nameOfAssignable(a).toLowerCase() === nameOfAssignable(b).toLowerCase();
}

function usergroupOf(text: string): number | undefined {
  const [, digits] = /^(?:user)?group[/:](\d{1,15})$/i.exec(text) ?? [];
  return digits === undefined ? undefined : Number(digits);
}
