import {
  type DisplayLabelsV1,
  type DisplayLabelsV2,
  displayLabelsPath,
  type LabelledCollection,
} from '../../contract/labels.ts';
import type { PlatformClient } from '../client.ts';

/** Display labels of assets and instrumentations (platform 4.4, 2.6). */
export class DisplayLabels {
  readonly #client: PlatformClient;

  constructor(client: PlatformClient) {
    this.#client = client;
  }

  /**
   * v2: sets labels by key. Returns the labels in the response, if any. The specification does not describe the
   * response body.
   */
  async change(
    collection: LabelledCollection,
    id: number,
    body: DisplayLabelsV2,
  ): Promise<DisplayLabelsV2 | undefined> {
    const path = displayLabelsPath(2, collection, id);
    const changed = await this.#client.act({ method: 'PATCH', path, body, kind: 'other' });
    return changed && Object.values(changed).every(isLabel) ? (changed as DisplayLabelsV2) : undefined;
  }

  /** v1 (deprecated): sets names by key. */
  async changeV1(collection: LabelledCollection, id: number, body: DisplayLabelsV1): Promise<void> {
    await this.#client.act({ method: 'PATCH', path: displayLabelsPath(1, collection, id), body, kind: 'other' });
  }
}

function isLabel(value: unknown): boolean {
  return typeof value === 'object' && value !== null && !Array.isArray(value);
}
