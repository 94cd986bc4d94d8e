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

  /** v2: key to label. Returns the labels in the response, if it contains any: the document does not show its body. */
  async change(
    collection: LabelledCollection,
    id: number,
    labels: DisplayLabelsV2,
    signal?: AbortSignal,
  ): Promise<DisplayLabelsV2 | undefined> {
    const path = displayLabelsPath(2, collection, id);
    const body = await this.#client.act({ method: 'PATCH', path, body: labels, kind: 'other', signal });
    return body && Object.values(body).every(isLabel) ? (body as DisplayLabelsV2) : undefined;
  }

  /** v1 (deprecated): key to name. */
  async changeV1(
    collection: LabelledCollection,
    id: number,
    labels: DisplayLabelsV1,
    signal?: AbortSignal,
  ): Promise<void> {
    const path = displayLabelsPath(1, collection, id);
    await this.#client.act({ method: 'PATCH', path, body: labels, kind: 'other', signal });
  }
}

function isLabel(value: unknown): boolean {
  return typeof value === 'object' && value !== null && !Array.isArray(value);
}
