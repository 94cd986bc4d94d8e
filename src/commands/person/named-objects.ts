import {
  type AssignableV1,
  type AssignableV2,
  PERMISSION_TYPES,
  PERMITABLE_TYPES,
  type PermissionType,
  type Permitable,
  type PermitableType,
} from '../../contract/permissions.ts';
import { UsageError } from '../../errors.ts';

/** How objects, people and permission types are written on the command line, read and written. */

/** Spellings that people use for the types of the spec, lower case, without marks. */
const ALIASES: Readonly<Record<string, PermitableType>> = { edgedevice: 'EDM::EdgeDevice', tag: 'Instrumentation' };

/** Longer is no address that mail could be sent to (RFC 5321). */
const EMAIL = /^[^\s@/]{1,64}@[^\s@/]{1,255}$/;

/** `Asset/881`, in any case; `EDM::EdgeDevice/30` or `EdgeDevice/30`. */
export function permitableOf(text: string): Permitable {
  const [, name, digits] = /^(.+)[/:](\d{1,15})$/.exec(text) ?? [];
  const wanted = name?.toLowerCase().replaceAll(/[^a-z]/g, '');
  const type = PERMITABLE_TYPES.find((one) => one.toLowerCase().replaceAll(/[^a-z]/g, '') === wanted);
  const found = type ?? ALIASES[wanted ?? ''];
  if (found === undefined || digits === undefined) {
    throw new UsageError(
      `${JSON.stringify(text)} names no object`,
      `Write it as Asset/881. Types: ${PERMITABLE_TYPES.join(', ')}.`,
    );
  }
  return { type: found, id: Number(digits) };
}

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

/** `can_read can_update`, `read,update` or `all`; each once, in the order of the spec. */
export function permissionTypesOf(words: readonly string[]): PermissionType[] {
  const names = words.flatMap((word) => word.split(',')).filter((name) => name !== '');
  const given = new Set(
    names.flatMap((name): readonly PermissionType[] => {
      const plain = name.toLowerCase();
      if (plain === 'all') return PERMISSION_TYPES;
      const type = PERMISSION_TYPES.find((one) => one === plain || one === `can_${plain}`);
      if (type === undefined) {
        throw new UsageError(
          `${JSON.stringify(name)} is no permission`,
          `Write some of ${PERMISSION_TYPES.join(', ')}.`,
        );
      }
      return [type];
    }),
  );
  return PERMISSION_TYPES.filter((type) => given.has(type));
}

export function nameOfPermitable({ type, id }: Permitable): string {
  return `${type}/${id}`;
}

export function nameOfAssignable(assignable: AssignableV1 | AssignableV2 | undefined): string {
  if (assignable === undefined) return '(not told)';
  if ('email' in assignable) return assignable.email;
  return `${assignable.type.toLowerCase()}/${assignable.id}`;
}

export function isSameAssignable(a: AssignableV2 | undefined, b: AssignableV2): boolean {
  if (a === undefined || a.type !== b.type) return false;
  return nameOfAssignable(a).toLowerCase() === nameOfAssignable(b).toLowerCase();
}

function usergroupOf(text: string): number | undefined {
  const [, digits] = /^(?:user)?group[/:](\d{1,15})$/i.exec(text) ?? [];
  return digits === undefined ? undefined : Number(digits);
}
