import type { QuarantinedValues } from '../../buffer/operator/requeueing.ts';
import { type Feed, frame } from './live-stream.ts';

export interface HeldFeedParts {
  /** Values in quarantine now. */
  quarantined(): number;
  /** What stands in it, oldest first. */
  show(page: { after: number; limit: number }): Promise<QuarantinedValues[]>;
  /** A series as people know it. */
  nameOf(series: number): string;
}

const LINES = 200;

/** What is in quarantine, with the platform's words; again when it is another. What is held stands in the status. */
export function heldFeed({ quarantined, show, nameOf }: HeldFeedParts): Feed {
  let sent: string | undefined;
  const look = async () => {
    const rows = quarantined() === 0 ? [] : await show({ after: 0, limit: LINES + 1 });
    const quarantine = rows.slice(0, LINES).map(({ series, count, status, message, atMs, timeMs, value }) => ({
      name: nameOf(series),
      values: count,
      status,
      message,
      refusedAtMs: atMs,
      first: timeMs.map((each, at) => ({ timeAtMs: each, value: value[at]! })),
    }));
    return frame('held', { quarantine, isMore: rows.length > LINES });
  };
  return {
    begin: async () => [await look()],
    async next() {
      const now = await look();
      if (now === sent) return [];
      sent = now;
      return [now];
    },
  };
}
