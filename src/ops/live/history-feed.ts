import type { History } from './history.ts';
import { type Feed, frame } from './live-stream.ts';

export function historyFeed(history: History): Feed {
  let sentSecond = history.second;
  return {
    begin(seen) {
      const rest = seen && history.since(seen.second);
      return [frame('history', { whole: rest === undefined, ...(rest ?? history.all()) })];
    },
    next() {
      const rest = history.since(sentSecond);
      sentSecond = history.second;
      return rest && rest.seconds.length > 0 ? [frame('history', { whole: false, ...rest })] : [];
    },
  };
}
