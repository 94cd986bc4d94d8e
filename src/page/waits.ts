/** Reasons why the agent is waiting, and when each wait ends. */
import { counted, durationText } from '../base/amounts.ts';
import type { StatusReport } from '../ops/status-report.ts';

export interface Wait {
  what: string;
  until: string;
}

export function waitsOf({ session, uplink, buffer, holds }: StatusReport): Wait[] {
  const waits: Wait[] = [];
  const inSeconds = (seconds: number) => `in ${durationText(seconds)}`;
  if (!session.usable) {
    const { retry_in_seconds: retry } = session;
    waits.push({
      what: 'session',
      until: retry === undefined ? 'signing in' : `next attempt ${inSeconds(retry)}`,
    });
  }
  if (uplink.away)
    waits.push({ what: 'platform', until: `next attempt ${inSeconds(uplink.away.next_try_in_seconds)}` });
  if (uplink.resting) waits.push({ what: 'rate limit', until: inSeconds(uplink.resting.for_seconds) });
  const waiting = holds.filter((hold) => hold.values_wait);
  const probes = waiting.map((hold) => hold.next_probe_in_seconds).filter((seconds) => seconds !== null);
  if (waiting.length > 0) {
    const next = probes.length > 0 ? `, next attempt ${inSeconds(Math.min(...probes))}` : '';
    waits.push({ what: 'permissions', until: `${counted(waiting.length, 'object')}${next}` });
  }
  if (uplink.waiting_series.length > 0) {
    const next = Math.min(...uplink.waiting_series.map((series) => series.next_try_in_seconds));
    waits.push({ what: 'rejected series', until: `next attempt ${inSeconds(next)}` });
  }
  if (buffer.waiting_for_commit > 0) waits.push({ what: 'disk', until: counted(buffer.waiting_for_commit, 'value') });
  return waits;
}
