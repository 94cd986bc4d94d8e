import type { RecentLines } from '../../base/recent-lines.ts';
import { type Feed, frame } from './live-stream.ts';

/** So many lines an event. */
const LINES_AT_ONCE = 200;

/** The lines that the daemon keeps in memory, and those that come. */
export function logFeed(recent: RecentLines): Feed {
  let sentLine = recent.since(0).next;
  const framesFrom = (from: number, whole: boolean) => {
    const { lines, missed } = recent.since(from);
    const frames: string[] = [];
    for (let at = 0; at < lines.length; at += LINES_AT_ONCE) {
      const some = lines.slice(at, at + LINES_AT_ONCE).map((line) => JSON.parse(line) as Record<string, unknown>);
      frames.push(frame('log', { whole: whole && at === 0, missed: at === 0 && !whole ? missed : 0, lines: some }));
    }
    return frames;
  };
  return {
    begin: (seen) => framesFrom(seen?.line ?? 0, seen === undefined),
    next() {
      const from = sentLine;
      sentLine = recent.since(from).next;
      return framesFrom(from, false);
    },
  };
}
