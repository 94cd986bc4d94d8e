import { counted } from '../../base/amounts.ts';
import type { Sandbox } from '../../sandbox/sandbox.ts';
import type { Pusher } from './pusher.ts';

/** What was pushed, and what became of it, counted at the platform by series and timestamp. */
export interface Count {
  /** Values in requests that were sent. */
  sent: number;
  /** Values in requests that were answered 204. */
  acknowledged: number;
  /** Distinct values of the pushed series that the platform has. */
  atPlatform: number;
  /** Acknowledged, and not at the platform. */
  missing: number;
  /** At the platform, and never sent. */
  invented: number;
  /** At the platform with another number than was sent. */
  different: number;
}

/** What is known of the pushes. */
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
    // Without an answer nobody knows whether a value was taken: it may be there, it need not.
    const sent = sandbox.values.compare(asset, key, pusher.valuesOf(index));
    count.atPlatform += sandbox.values.counts(asset, key).stored;
    count.missing += sandbox.values.compare(asset, key, pusher.valuesOf(index, { acknowledged: true })).missing.length;
    count.invented += sent.invented.length;
    count.different += sent.different.length;
  });
  return count;
}

/** Sentences about what does not come out; empty where the demo kept its promise. */
export function problemsOf(count: Count): string[] {
  const problems: string[] = [];
  const { sent, acknowledged } = count;
  if (acknowledged === 0) problems.push('no value was acknowledged');
  else if (acknowledged !== sent) problems.push(`${sent - acknowledged} of ${counted(sent, 'value')} not acknowledged`);
  if (count.missing > 0)
    problems.push(`${counted(count.missing, 'acknowledged value', 'is', 'are')} missing at the platform`);
  if (count.invented > 0) problems.push(`${counted(count.invented, 'value')} at the platform never sent`);
  if (count.different > 0) problems.push(`${counted(count.different, 'value')} at the platform not as sent`);
  return problems;
}
