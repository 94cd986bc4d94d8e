/** Links in the flow picture, with their state, rate and, if there is a problem, its cause. */
import { counted, countText, durationText } from '../base/amounts.ts';
import type { StatusReport } from '../ops/status-report.ts';
import { noTokenState } from '../platform/response-meanings.ts';

/** Each kind has its own text, colour and shape. */
type LinkKind = 'flows' | 'waits' | 'held' | 'refused' | 'away' | 'off';

export const LINK_TEXTS: Readonly<Record<LinkKind, string>> = {
  flows: 'flowing',
  waits: 'idle',
  held: 'held',
  refused: 'rejected',
  away: 'unavailable',
  off: 'off',
};

export interface FlowLink {
  from: string;
  to: string;
  kind: LinkKind;
  /** Text that replaces the kind's default text, such as `unavailable for 5 min`. */
  words?: string;
  rate: string;
  /** Cause of the problem, unless it is obvious. */
  why?: string;
}

const REFUSED_STATES: ReadonlySet<string> = new Set(['posts rejected', 'quota used up']);

/** Value links: plant, buffer, platform. */
export function valueLinks(now: StatusReport): FlowLink[] {
  const { rates } = now;
  return [
    { from: 'plant', to: 'buffer', rate: `${countText(rates.ingested_per_minute)} values/min`, ...intakeOf(now) },
    { from: 'buffer', to: 'platform', rate: `${countText(rates.delivered_per_minute)} values/min`, ...postsOf(now) },
  ];
}

type Described = Pick<FlowLink, 'kind' | 'words' | 'why'>;

function intakeOf({ buffer, sources, rates }: StatusReport): Described {
  const [problem] = buffer.problems;
  if (problem !== undefined) return { kind: 'refused', why: problem };
  const silent = sources.filter((source) => source.silent);
  if (silent.length > 0) {
    const why = `silent: ${silent.map(({ name }) => name).join(', ')}`;
    return { kind: rates.ingested_per_minute > 0 ? 'flows' : 'waits', why };
  }
  return rates.ingested_per_minute > 0 ? { kind: 'flows' } : { kind: 'waits', why: 'no values' };
}

function postsOf({ state, uplink, session, buffer, holds, rates }: StatusReport): Described {
  const { away, resting } = uplink;
  if (away) {
    const since = durationText(away.since_seconds);
    if (REFUSED_STATES.has(state)) return { kind: 'refused', words: `${state} for ${since}`, why: away.message };
    return { kind: 'away', words: `unavailable for ${since}`, why: away.message };
  }
  if (!session.usable) {
    const isUnavailable = noTokenState(session.last_error?.code) === 'platform unavailable';
    const words = isUnavailable ? 'unavailable' : 'signed out';
    return { kind: 'away', words, why: session.last_error?.message ?? session.state };
  }
  if (resting)
    return { kind: 'waits', words: 'paused', why: `rate limited (429) until ${resting.until.slice(11, 19)} UTC` };
  const waiting = uplink.waiting_series.length;
  const held = holds.filter((hold) => hold.values_wait).length;
  if (held > 0) return { kind: 'held', words: `${counted(held, 'object')} held`, why: 'other values are posted' };
  if (waiting > 0)
    return { kind: 'refused', words: `${counted(waiting, 'series')} rejected`, why: 'other values are posted' };
  if (rates.delivered_per_minute > 0) return { kind: 'flows' };
  return { kind: 'waits', why: buffer.values > 0 ? 'waiting for the next post' : 'nothing to post' };
}

/** Event links: platform, inbox, reactions. */
export function eventLinks(now: StatusReport): FlowLink[] {
  const { events } = now;
  const last = events[0]?.received_at;
  const rate = last ? `latest ${last.slice(11, 19)} UTC` : 'none yet';
  return [
    { from: 'platform', to: 'inbox', rate, ...listenerOf(now) },
    { from: 'inbox', to: 'reactions', rate: reactionsRate(now), ...reactionsOf(now) },
  ];
}

function listenerOf({ listener, events }: StatusReport): Described {
  if (listener.webhook === undefined) return { kind: 'off', why: 'WEBHOOK_LISTEN is off' };
  if (listener.webhook_url === undefined) return { kind: events.length > 0 ? 'flows' : 'waits' };
  if (listener.registered === undefined)
    return { kind: 'away', words: 'not registered', why: 'see tagferry webhook ls' };
  if (listener.disabled_by !== null) return { kind: 'away', words: 'disabled', why: 'run tagferry webhook enable' };
  if (!listener.secret_known) return { kind: 'refused', words: 'secret unknown', why: 'see tagferry webhook ls' };
  return { kind: events.length > 0 ? 'flows' : 'waits' };
}

function reactionsRate({ events }: StatusReport): string {
  const done = events.filter(({ state }) => state === 'done').length;
  return events.length === 0 ? 'none yet' : `${done} of the last ${events.length} done`;
}

function reactionsOf({ events }: StatusReport): Described {
  const dead = events.filter(({ state }) => state === 'dead' || state === 'failed');
  if (dead.length > 0) return { kind: 'refused', words: `${counted(dead.length, 'event')} failed` };
  const running = events.filter(({ state }) => state === 'running' || state === 'received');
  if (running.length > 0) return { kind: 'flows', words: 'running' };
  return { kind: events.length > 0 ? 'flows' : 'waits' };
}
