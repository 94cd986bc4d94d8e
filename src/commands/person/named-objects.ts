import { UsageError } from '../../base/errors.ts';
import type { AssignableV1, AssignableV2, Permitable } from '../../contract/permissions.ts';

/** How objects, people and permission types are written on the command line, read and written. */

/** Longer is no address that mail could be sent to (RFC 5321). */
const EMAIL = /^[^\s@/]{1,64}@[^\s@/]{1,255}$/;

/** v2: an e-mail address, or `usergroup/40`. */
export function assignableV2Of(text: string): AssignableV2 {
  if (EMAIL.test(text)) return { email: text, type: 'User' };
  const group = usergroupOf(text);
  if (group !== undefined) return { id: group, type: 'Usergroup' };
  const hint = 'Write the e-mail address of a user, or usergroup/40. Numbers of users belong to --v1.';
  throw new UsageError(`${JSON.stringify(text)} names nobody`, hint);
}

/** v1: `user/6` or `usergroup/40`. */
export function assignableV1Of(text: string): AssignableV1 {
  const group = usergroupOf(text);
  if (group !== undefined) return { id: group, type: 'Usergroup' };
  const [, digits] = /^(?:user[/:])?(\d{1,15})$/i.exec(text) ?? [];
  if (digits !== undefined) return { id: Number(digits), type: 'User' };
  const hint = 'v1 names users by number: user/6, or usergroup/40. Leave out --v1 to name them by e-mail.';
  throw new UsageError(`${JSON.stringify(text)} names nobody`, hint);
}

/** A user alone, for owners and members: by e-mail. */
export function emailOf(text: string): string {
  if (EMAIL.test(text)) return text;
  throw new UsageError(
    `${JSON.stringify(text)} is no e-mail address`,
    'Users are named by e-mail; by number with --v1.',
  );
}

/** A user alone in v1. */
export function userIdOf(text: string): number {
  const assignable = assignableV1Of(text);
  if (assignable.type === 'User') return assignable.id;
  throw new UsageError(`${JSON.stringify(text)} is no user`, 'Write user/6.');
}

/** For who and object of a record that does not contain them. */
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
