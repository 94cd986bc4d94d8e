/** What carries display labels (platform 4.4), as it stands in the path. */
export const LABELLED_COLLECTIONS = ['assets', 'instrumentations'] as const;
export type LabelledCollection = (typeof LABELLED_COLLECTIONS)[number];

/** Platform 2.6: one entry of the v2 body. */
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

/** v2: value key to label. */
export type DisplayLabelsV2 = Record<string, DisplayLabel>;
/** v1, deprecated: value key to name. */
export type DisplayLabelsV1 = Record<string, string>;

/** The types that platform 2.6 gives to the members of a v2 label: what checks and help texts are made from. */
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
