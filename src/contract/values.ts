/**
 * Asset values (platform 10.2). Only `POST /v1/assets/{asset_id}/values` writes numbers. Success is 204 without a body.
 * The platform silently discards invalid values, so they are checked before the post.
 */
export type ValueStatus = 'good' | 'uncertain' | 'bad';
export const VALUE_STATUSES: readonly ValueStatus[] = ['good', 'uncertain', 'bad'];

/** Unit, identified by number or by code. */
export type UnitReference = { id: number } | { code: string };

interface ValuePoint {
  /** ISO 8601, UTC, milliseconds, `Z`. */
  timestamp?: string;
  value: number;
  status?: ValueStatus;
  simulated?: boolean;
  hold?: boolean;
}

interface ValuesOfKey {
  key: string;
  group?: string;
  unit?: UnitReference;
  data: ValuePoint[];
}

export interface ValuesBody {
  values: ValuesOfKey[];
}

/** Keys and groups: letters, digits, `.`, `-`, `_`; 1 to 128 characters; the server lower-cases them. */
export const KEY_PATTERN = /^[A-Za-z0-9._-]{1,128}$/;

/** Maximum size of a request body; the platform rejects larger bodies with 413. */
export const MAX_BODY_BYTES = 500_000;
