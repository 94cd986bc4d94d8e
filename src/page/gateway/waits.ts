/** What the daemon waits for now, and until when. Pure. */
import { counted, durationText } from '../../base/amounts.ts';
import type { StatusReport } from '../../ops/status-report.ts';

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
      what: 'a session',
      until: retry === undefined ? 'it is asked for' : `tried again ${inSeconds(retry)}`,
    });
  }
  if (uplink.away)
    waits.push({ what: 'the platform', until: `tried again ${inSeconds(uplink.away.next_try_in_seconds)}` });
  if (uplink.resting) waits.push({ what: 'the end of a rest', until: inSeconds(uplink.resting.for_seconds) });
  const probes = holds.map((hold) => hold.next_probe_in_seconds).filter((seconds) => seconds !== null);
  if (holds.length > 0) {
    const next = probes.length > 0 ? `, the next is tried ${inSeconds(Math.min(...probes))}` : '';
    waits.push({ what: 'permissions', until: `${counted(holds.length, 'hold')}${next}` });
  }
  if (uplink.waiting_series.length > 0) {
    const next = Math.min(...uplink.waiting_series.map((series) => series.next_try_in_seconds));
    waits.push({ what: 'refused series', until: `the next is tried ${inSeconds(next)}` });
  }
  if (buffer.waiting_for_commit > 0)
    waits.push({ what: 'the disk', until: counted(buffer.waiting_for_commit, 'value') });
  return waits;
}
