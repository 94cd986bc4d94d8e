import type { ObjectListing, ObjectQuery } from '../../access/known-objects.ts';
import { type Feed, frame } from './live-stream.ts';

export interface AssetsFeedParts {
  /** Moves with every change. */
  changes(): Promise<number>;
  list(query: ObjectQuery): Promise<ObjectListing>;
}

const ROWS = 2_000;
/** Seconds from one look to the next: a permission for a whole site is thousands of events within a minute. */
const LOOK_EVERY = 5;

/** Known assets, instrumentations and nodes, sent again after they changed. */
export function assetsFeed({ changes, list }: AssetsFeedParts): Feed {
  let sent: number | undefined;
  let seconds = 0;
  const look = async () => {
    // Read first: a change during the listing is sent with the next look.
    sent = await changes();
    return [frame('assets', await list({ limit: ROWS }))];
  };
  return {
    begin: look,
    async next() {
      seconds++;
      const isDue = seconds % LOOK_EVERY === 0 && sent !== (await changes());
      return isDue ? look() : [];
    },
  };
}
