import { UsageError } from '../base/errors.ts';
import {
  PERMISSION_TYPES,
  PERMITABLE_TYPES,
  type PermissionType,
  type Permitable,
  type PermitableType,
} from './permissions.ts';

/** How people write objects and permission types of platform 2.2 on a command line. */

/** Spellings that people use for the types of the spec, lower case, without marks. */
const ALIASES: Readonly<Record<string, PermitableType>> = { edgedevice: 'EDM::EdgeDevice', tag: 'Instrumentation' };

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
