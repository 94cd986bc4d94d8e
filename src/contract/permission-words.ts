import { UsageError } from '../base/errors.ts';
import {
  PERMISSION_TYPES,
  PERMITABLE_TYPES,
  type PermissionType,
  type Permitable,
  type PermitableType,
} from './permissions.ts';

/** Other spellings of permitable types, in lower case without punctuation. */
const ALIASES: Readonly<Record<string, PermitableType>> = { edgedevice: 'EDM::EdgeDevice', tag: 'Instrumentation' };

/** Parses an object on the command line: `Asset/881`, in any case; `EDM::EdgeDevice/30` or `EdgeDevice/30`. */
export function permitableOf(text: string): Permitable {
  const [, name, digits] = /^(.+)[/:](\d{1,15})$/.exec(text) ?? [];
  const wanted = name?.toLowerCase().replaceAll(/[^a-z]/g, '');
  const type = PERMITABLE_TYPES.find((one) => one.toLowerCase().replaceAll(/[^a-z]/g, '') === wanted);
  const found = type ?? ALIASES[wanted ?? ''];
  if (found === undefined || digits === undefined) {
    throw new UsageError(
      `${JSON.stringify(text)} is not an object`,
      `Use the form Asset/881. Types: ${PERMITABLE_TYPES.join(', ')}.`,
    );
  }
  return { type: found, id: Number(digits) };
}

/**
 * Parses permission types on the command line: `can_read can_update`, `read,update` or `all`. Returns each type once,
 * in the order of the specification.
 */
export function permissionTypesOf(words: readonly string[]): PermissionType[] {
  const names = words.flatMap((word) => word.split(',')).filter((name) => name !== '');
  const given = new Set(
    names.flatMap((name): readonly PermissionType[] => {
      const plain = name.toLowerCase();
      if (plain === 'all') return PERMISSION_TYPES;
      const type = PERMISSION_TYPES.find((one) => one === plain || one === `can_${plain}`);
      if (type === undefined) {
        throw new UsageError(
          `${JSON.stringify(name)} is not a permission`,
          `Use one or more of ${PERMISSION_TYPES.join(', ')}.`,
        );
      }
      return [type];
    }),
  );
  return PERMISSION_TYPES.filter((type) => given.has(type));
}
