/**
 * Named points between two steps of which a crash may leave only the first one behind. `test/prove/crash` subscribes to
 * the channel, and kills the process or fills the disk at exactly one point. Without a subscriber, an announcement does
 * nothing.
 */
import { channel } from 'node:diagnostics_channel';

/** The points, with the state at each point. */
export const CRASH_POINTS = {
  'commit.before': 'all rows of a commit are written, and its transaction is still open',
  'commit.after': 'the commit is on disk, and memory does not include it yet',
  'commit.unacknowledged': 'the commit is on disk, and its values are not acknowledged yet',
  flush: 'the flushed values are removed from the log in memory, and their segments are not added yet',
  merge: 'the merged segments are removed in memory, and the segment that replaces them is not added yet',
  'rescue.copy': 'some rows of a corrupt database are in its replacement, and their transaction is still open',
  'post.unsettled': 'the platform accepted a post, and its values are not settled yet',
  'event.undispatched': 'an event was acknowledged with 204, and its reactions have not started',
  'action.before': 'the start of an action is on disk if it is recorded, and the action has not started',
  'action.after': 'an action has ended, and its end is not on disk yet',
} as const;

export type CrashPoint = keyof typeof CRASH_POINTS;

const points = channel('tagferry:crash-point');

/** Announces that the calling thread is at a point. Subscribers run before this function returns. */
export function announce(point: CrashPoint): void {
  if (points.hasSubscribers) points.publish(point);
}
