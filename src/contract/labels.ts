/** Collections with display labels (platform 4.4), as in the path. */
export const LABELLED_COLLECTIONS = ['assets', 'instrumentations'] as const;
export type LabelledCollection = (typeof LABELLED_COLLECTIONS)[number];

/** An entry of the v2 body (platform 2.6). */
export interface DisplayLabel {
  name?: string;
  preferred_unit?: string;
  unit_extension?: string;
  precision?: number;
  priority?: number;
  is_visible?: boolean;
  expected_min?: number;
  expected_max?: number;
  is_primary?: boolean;
}

/** Map from value key to label (v2). */
export type DisplayLabelsV2 = Record<string, DisplayLabel>;
/** Map from value key to name (v1, deprecated). */
export type DisplayLabelsV1 = Record<string, string>;

/** Member types of a v2 label (platform 2.6), for checks and help texts. */
export const DISPLAY_LABEL_MEMBERS: Readonly<Record<keyof DisplayLabel, 'string' | 'integer' | 'number' | 'boolean'>> =
  {
    name: 'string',
    preferred_unit: 'string',
    unit_extension: 'string',
    precision: 'integer',
    priority: 'integer',
    is_visible: 'boolean',
    expected_min: 'number',
    expected_max: 'number',
    is_primary: 'boolean',
  };

export function displayLabelsPath(version: 1 | 2, collection: LabelledCollection, id: number): string {
  return `/v${version}/${collection}/${id}/display_labels`;
}
