/** The four permission types (platform 2.2). No type implies another. */
export const PERMISSION_TYPES = ['can_read', 'can_update', 'can_delete', 'can_permit'] as const;
export type PermissionType = (typeof PERMISSION_TYPES)[number];

/** Object types for which permissions can be granted (platform 2.2). */
export const PERMITABLE_TYPES = [
  'Asset',
  'Instrumentation',
  'Node',
  'Document',
  'EDM::EdgeDevice',
  'Event',
  'Usergroup',
  'APIKey',
  'ClientApplication',
  'BillOfMaterial',
  'PurchaseOrder',
  'Delivery',
  'Quotation',
  'RequestOfQuotation',
  'Recipe',
] as const;
export type PermitableType = (typeof PERMITABLE_TYPES)[number];

export interface Permitable {
  id: number;
  type: PermitableType;
}

/**
 * Users and usergroups in v1, identified by ID. The specification prints this member as `the service`; its name is
 * `assignable`.
 */
export interface AssignableV1 {
  id: number;
  type: 'User' | 'Usergroup';
}

/** Users and usergroups in v2; users are identified by e-mail, usergroups by ID. */
export type AssignableV2 = { email: string; type: 'User' } | { id: number; type: 'Usergroup' };

/** Request body for creating permissions in v1. One example shows `permission_type` as a comma-separated string. */
export interface PermissionCreateV1 {
  permission_type: PermissionType[] | string;
  assignable: AssignableV1;
  permitable: Permitable;
}

/** Permission in v1, with one record per type. Its ID is a string: the object ID plus an offset. */
export interface PermissionRecordV1 {
  id: string;
  /** One of `PERMISSION_TYPES`, or a type that the platform added. */
  permission_type: string;
  assignable?: AssignableV1;
  permitable?: Permitable;
}

export interface PermissionCreateV2 {
  permission_types: PermissionType[];
  assignable: AssignableV2;
  permitable: Permitable;
}

/** Permission in v2, with one record per pair of assignable and permitable. */
export interface PermissionRecordV2 {
  id: number;
  /** Some of `PERMISSION_TYPES`, or types that the platform added. */
  permission_types: string[];
  assignable?: AssignableV1 | AssignableV2;
  permitable?: Permitable;
}

/** Offsets of v1 ids (platform 2.2). The specification does not show the offset of `can_permit`. */
export const PERMISSION_ID_OFFSETS_V1: Readonly<Partial<Record<PermissionType, number>>> = {
  can_read: 1,
  can_update: 2,
  can_delete: 4,
};

/** Body of POST and DELETE on the owners endpoints (platform 4.2). */
export interface OwnerV1 {
  assignable: { id: number; type: 'User' };
  permitable: Permitable;
}

export interface OwnerV2 {
  assignable: { email: string; type: 'User' };
  permitable: Permitable;
}
