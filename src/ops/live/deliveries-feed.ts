import type { RecentDeliveries } from '../../webhook/deliveries.ts';
import { type Feed, frame } from './live-stream.ts';

/** Deliveries of the webhook on the platform, sent again whenever they were read again. */
export function deliveriesFeed(recent: () => RecentDeliveries): Feed {
  let sent: RecentDeliveries | undefined;
  return {
    begin: () => [frame('deliveries', recent())],
    next() {
      const now = recent();
      if (now === sent) return [];
      sent = now;
      return [frame('deliveries', now)];
    },
  };
}
