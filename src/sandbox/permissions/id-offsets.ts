import { PERMISSION_ID_OFFSETS_V1, type PermissionType } from '../../contract/permissions.ts';

/**
 * Ids of v1 permissions: the id of the record plus an offset for each type (platform 2.2). The document does not show the offset of
 * can_permit. Records are as far apart as the largest offset requires, so that each v1 id belongs to one record and one type.
 */
export const CAN_PERMIT_OFFSET = 3;
const MAX_OFFSET = 1_000_000;

export function offsetOf(type: PermissionType, canPermitOffset: number): number {
  return PERMISSION_ID_OFFSETS_V1[type] ?? canPermitOffset;
}

/** Returns why can_permit cannot have this offset, or undefined. */
export function offsetProblem(offset: number): string | undefined {
  if (!Number.isInteger(offset) || offset < 0 || offset > MAX_OFFSET) {
    return `must be a whole number between 0 and ${MAX_OFFSET}`;
  }
  const [type] = Object.entries(PERMISSION_ID_OFFSETS_V1).find(([, taken]) => taken === offset) ?? [];
  return type === undefined ? undefined : `is the offset of ${type}`;
}

/** Returns the distance of record ids, a power of two that exceeds every offset. Throws `RangeError` for an impossible offset. */
export function recordDistance(canPermitOffset: number = CAN_PERMIT_OFFSET): number {
  const problem = offsetProblem(canPermitOffset);
  if (problem !== undefined) throw new RangeError(`canPermitOffset ${canPermitOffset} ${problem}`);
  let distance = 8;
  while (distance <= canPermitOffset) distance *= 2;
  return distance;
}
