import { systemClock } from '../../../src/base/clock.ts';
import { browseNodes } from '../../../src/opcua/browse.ts';
import { itemsWithHistory, readHistory } from '../../../src/opcua/history.ts';
import type { FoundNode, Item, Reading, ReadValue } from '../../../src/opcua/protocol.ts';
import { readItems } from '../../../src/opcua/readings.ts';
import { Session } from '../../../src/opcua/session.ts';
import { Subscription } from '../../../src/opcua/subscription.ts';

/** Everything that the reader program reads from a server. */
export interface ReadServer {
  values: ReadValue[];
  found: FoundNode[];
  /** Items with history. */
  history: number[];
  /** History of the first item. */
  past: Reading[];
  pages: number;
  /** Values of the first messages of a subscription. */
  notified: ReadValue[];
  rejected: (readonly [item: number, why: string])[];
}

const MESSAGES = 3;
const END_MS = Date.UTC(2100, 0, 1);

/** Reads the items and the tree below `Line` once. `folder`: for the certificate of the client. */
export async function readServer(url: string, items: readonly Item[], folder: string): Promise<ReadServer> {
  const endpoint = { url, policy: 'None', mode: 'None', identity: { folder }, trustFolder: folder } as const;
  const session = await Session.open(endpoint);
  try {
    const values = await readItems(session, items);
    const found: FoundNode[] = [];
    for await (const step of browseNodes(session, ['Line'], systemClock)) if ('found' in step) found.push(step.found);
    const history = await itemsWithHistory(session, items);
    const past: Reading[] = [];
    let pages = 0;
    for (let point: string | undefined; ; ) {
      const span = { item: items[0]!, fromMs: 0, untilMs: END_MS, ...(point === undefined ? {} : { point }) };
      const page = await readHistory(session, span);
      past.push(...page.past);
      pages++;
      ({ point } = page);
      if (point === undefined) break;
    }
    return { values, found, history, past, pages, ...(await subscribe(session, items)) };
  } finally {
    await session.close(true);
  }
}

async function subscribe(session: Session, items: readonly Item[]): Promise<Pick<ReadServer, 'notified' | 'rejected'>> {
  const notified: ReadValue[] = [];
  let rejected: ReadServer['rejected'] = [];
  let messages = 0;
  const enough = Promise.withResolvers<void>();
  const subscription = new Subscription(session, items, {
    subscribed: () => {},
    rejected: (all) => {
      rejected = [...all];
    },
    notified: ({ sequence, values }) => {
      notified.push(...values);
      subscription.stored(sequence);
      if (++messages === MESSAGES) enough.resolve();
    },
    lost: () => enough.reject(new Error('a message was lost')),
    ready: async () => {},
    pause: (ms) => systemClock.sleep(ms),
  });
  await subscription.open(undefined, undefined, false);
  await Promise.race([enough.promise, subscription.run()]);
  return { notified, rejected };
}
