import { counted } from '../../base/amounts.ts';
import type { Sandbox } from '../../sandbox/sandbox.ts';
import type { Pusher } from './pusher.ts';

/** Pushed values and platform values, compared by series and timestamp. */
export interface Count {
  /** Values in requests that were sent. */
  sent: number;
  /** Values in requests that received a 204 response. */
  acknowledged: number;
  /** Number of distinct values of the pushed series on the platform. */
  atPlatform: number;
  /** Number of acknowledged values that are missing from the platform. */
  missing: number;
  /** Number of values on the platform that were never sent. */
  invented: number;
  /** Number of values whose platform value differs from the pushed value. */
  different: number;
}

type Pushed = Pick<Pusher, 'tags' | 'sent' | 'acknowledged' | 'valuesOf'>;

export function countAtPlatform(sandbox: Sandbox, pusher: Pushed): Count {
  const count: Count = {
    sent: pusher.sent,
    acknowledged: pusher.acknowledged,
    atPlatform: 0,
    missing: 0,
    invented: 0,
    different: 0,
  };
  pusher.tags.forEach(({ asset, key }, index) => {
    // A value without a response may or may not be on the platform.
    const sent = sandbox.values.compare(asset, key, pusher.valuesOf(index));
    count.atPlatform += sandbox.values.counts(asset, key).stored;
    count.missing += sandbox.values.compare(asset, key, pusher.valuesOf(index, { acknowledged: true })).missing.length;
    count.invented += sent.invented.length;
    count.different += sent.different.length;
  });
  return count;
}

/** Returns the problems found by a count; empty if all values arrived. */
export function problemsOf(count: Count): string[] {
  const problems: string[] = [];
  const { sent, acknowledged } = count;
  if (acknowledged === 0) problems.push('no value was acknowledged');
  else if (acknowledged !== sent) problems.push(`${sent - acknowledged} of ${counted(sent, 'value')} not acknowledged`);
  if (count.missing > 0)
    problems.push(`${counted(count.missing, 'acknowledged value', 'is', 'are')} missing on the platform`);
  if (count.invented > 0) problems.push(`${counted(count.invented, 'value')} found on the platform, but never sent`);
  if (count.different > 0) problems.push(`${counted(count.different, 'value')} different on the platform`);
  return problems;
}
