import {
  type DisplayLabelsV1,
  type DisplayLabelsV2,
  displayLabelsPath,
  type LabelledCollection,
} from '../../contract/labels.ts';
import type { ApiCalls } from '../client.ts';

/**
 * Sets display labels of an asset or instrumentation by key (platform 4.4, 2.6): objects in v2, names in v1
 * (deprecated). Returns the labels in the response to v2, if any. The specification does not describe the body.
 */
export async function changeDisplayLabels(
  client: ApiCalls,
  collection: LabelledCollection,
  id: number,
  change: { version: 1; body: DisplayLabelsV1 } | { version: 2; body: DisplayLabelsV2 },
): Promise<DisplayLabelsV2 | undefined> {
  const { version, body } = change;
  const path = displayLabelsPath(version, collection, id);
  const changed = await client.act({ method: 'PATCH', path, body, kind: 'other' });
  const isLabel = (value: unknown) => typeof value === 'object' && value !== null && !Array.isArray(value);
  if (version === 1 || !changed || !Object.values(changed).every(isLabel)) return undefined;
  return changed as DisplayLabelsV2;
}
