/**
 * The picture on top, from the status: how each part of the way is, in a word, a sentence and, where something is wrong, the command that
 * mends it. Pure.
 */
import { counted, countText, durationText } from '../../base/amounts.ts';
import type { StatusReport } from '../../ops/status-report.ts';

/** Each has a word, a colour and a shape of its own. */
type LinkKind = 'flows' | 'waits' | 'held' | 'refused' | 'away' | 'off';

export interface FlowLink {
  /** Between which two: `from` is left, or above. */
  from: string;
  to: string;
  kind: LinkKind;
  /** In place of the kind's own word: `away since 5 min`. */
  words?: string;
  rate: string;
  /** Why, where it is not plain. */
  why?: string;
}

const REFUSED_STATES: ReadonlySet<string> = new Set(['posts refused', 'quota spent']);

/** A value's way: plant, buffer, platform. */
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
  return rates.ingested_per_minute > 0 ? { kind: 'flows' } : { kind: 'waits', why: 'nothing comes now' };
}

function postsOf({ state, uplink, session, buffer, holds, rates }: StatusReport): Described {
  const { away, resting } = uplink;
  if (away) {
    const since = durationText(away.since_seconds);
    if (REFUSED_STATES.has(state)) return { kind: 'refused', words: `${state} since ${since}`, why: away.message };
    return { kind: 'away', words: `away since ${since}`, why: away.message };
  }
  if (!session.usable) return { kind: 'away', words: 'signed out', why: session.last_error?.message ?? session.state };
  if (resting) return { kind: 'waits', words: 'rests', why: `429: until ${resting.until.slice(11, 19)} UTC` };
  const waiting = uplink.waiting_series.length;
  if (holds.length > 0) return { kind: 'held', words: `${counted(holds.length, 'hold')}`, why: 'the rest flows' };
  if (waiting > 0) return { kind: 'refused', words: `${counted(waiting, 'series')} refused`, why: 'the rest flows' };
  if (rates.delivered_per_minute > 0) return { kind: 'flows' };
  return { kind: 'waits', why: buffer.values > 0 ? 'for the next post' : 'nothing to post' };
}

/** An event's way: platform, inbox, reactions. */
export function eventLinks(now: StatusReport): FlowLink[] {
  const { events } = now;
  const last = events[0]?.received_at;
  const rate = last ? `last ${last.slice(11, 19)} UTC` : 'none yet';
  return [
    { from: 'platform', to: 'inbox', rate, ...listenerOf(now) },
    { from: 'inbox', to: 'reactions', rate: reactionsRate(now), ...reactionsOf(now) },
  ];
}

function listenerOf({ listener, events }: StatusReport): Described {
  if (listener.webhook === undefined) return { kind: 'off', why: 'WEBHOOK_LISTEN is empty' };
  if (listener.webhook_url === undefined) return { kind: events.length > 0 ? 'flows' : 'waits' };
  if (listener.registered === undefined)
    return { kind: 'away', words: 'not registered', why: 'see tagferry webhook ls' };
  if (listener.disabled_by !== null) return { kind: 'away', words: 'disabled', why: 'tagferry webhook enable' };
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
