/** Platform 2.2: four disjoint types, none implies another. */
export const PERMISSION_TYPES = ['can_read', 'can_update', 'can_delete', 'can_permit'] as const;
export type PermissionType = (typeof PERMISSION_TYPES)[number];

/** Platform 2.2: what a permission can be on. */
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

/** v1: users and usergroups by id. The spec prints this member as `the service`; on the wire it is `assignable`. */
export interface AssignableV1 {
  id: number;
  type: 'User' | 'Usergroup';
}

/** v2: users by e-mail, usergroups by id. */
export type AssignableV2 = { email: string; type: 'User' } | { id: number; type: 'Usergroup' };

/** v1 create body; one example of the spec shows `permission_type` as one comma-separated string. */
export interface PermissionCreateV1 {
  permission_type: PermissionType[] | string;
  assignable: AssignableV1;
  permitable: Permitable;
}

/** v1: one record a type, its string id formed from the object id plus an offset. */
export interface PermissionRecordV1 {
  id: string;
  /** One of `PERMISSION_TYPES`, or one that the platform added. */
  permission_type: string;
  assignable?: AssignableV1;
  permitable?: Permitable;
}

export interface PermissionCreateV2 {
  permission_types: PermissionType[];
  assignable: AssignableV2;
  permitable: Permitable;
}

/** v2: one record a pair of assignable and permitable. */
export interface PermissionRecordV2 {
  id: number;
  /** Of `PERMISSION_TYPES`, and those that the platform added. */
  permission_types: string[];
  assignable?: AssignableV1 | AssignableV2;
  permitable?: Permitable;
}

/** Platform 2.2: offsets of v1 ids. That of `can_permit` is not shown. */
export const PERMISSION_ID_OFFSETS_V1: Readonly<Partial<Record<PermissionType, number>>> = {
  can_read: 1,
  can_update: 2,
  can_delete: 4,
};

/** Platform 4.2: body of POST and DELETE on the owners endpoints. */
export interface OwnerV1 {
  assignable: { id: number; type: 'User' };
  permitable: Permitable;
}

export interface OwnerV2 {
  assignable: { email: string; type: 'User' };
  permitable: Permitable;
}
