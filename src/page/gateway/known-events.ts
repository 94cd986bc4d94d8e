import type { LiveEvent, LiveEvents } from '../../ops/live/live-events.ts';

const EVENTS = 50;

/** The newest events of the inbox. */
export class KnownEvents {
  events: LiveEvent[] = [];
  rejected: Record<string, number> = {};
  received = 0;

  take({ whole, events, rejected, received }: LiveEvents['events']): void {
    const byId = new Map((whole ? [] : this.events).map((event) => [event.id, event]));
    for (const event of events) byId.set(event.id, event);
    this.events = [...byId.values()].sort((one, other) => other.id - one.id).slice(0, EVENTS);
    this.rejected = rejected;
    this.received = received;
  }
}
