import { counted, countText } from '../../base/amounts.ts';
import type { LiveEvent } from '../../ops/live/live-events.ts';
import type { StatusReport } from '../../ops/status-report.ts';
import { Shape, type ShapeName } from '../parts/shape.tsx';
import { DeliveriesList } from './deliveries-list.tsx';
import type { Model } from './model.ts';
import { TokenRequired } from './token-required.tsx';

const SHAPES: Readonly<Record<string, ShapeName>> = {
  received: 'waits',
  running: 'flows',
  done: 'ok',
  failed: 'warning',
  dead: 'failure',
};

/** Inbox events with the results of their reactions. */
export function EventsView({ model, now }: { model: Model; now: StatusReport }) {
  const { events, hello } = model;
  if (hello?.sight === 'status') {
    return (
      <>
        <TokenRequired what="Event payloads and reaction results" />
        {now.events.map((event) => (
          <article key={event.id}>
            <h3>
              <Mark state={event.state} /> {event.event_type}
            </h3>
            <Times model={model} event={event} />
          </article>
        ))}
      </>
    );
  }
  if (!events) return <p>Loading…</p>;
  const rejected = Object.entries(events.rejected).filter(([, count]) => count > 0);
  return (
    <>
      <p>
        {counted(events.received, 'event')} received since the agent started.{' '}
        {rejected.length === 0
          ? 'No requests rejected.'
          : `Rejected: ${rejected.map(([why, count]) => `${countText(count)} ${why.replaceAll('_', ' ')}`).join(', ')}.`}
      </p>
      <div class="stack">
        {events.events.map((event) => (
          <Event key={event.id} model={model} event={event} />
        ))}
        {events.events.length === 0 && <p>No events yet.</p>}
      </div>
      <DeliveriesList model={model} />
    </>
  );
}

function Mark({ state }: { state: string }) {
  return (
    <span class={state === 'dead' || state === 'failed' ? 'bad' : 'good'}>
      <Shape name={SHAPES[state] ?? 'waits'} /> {state}
    </span>
  );
}

function Times({ model, event }: { model: Model; event: Pick<LiveEvent, 'occurred_at' | 'received_at'> }) {
  return (
    <p>
      {event.occurred_at && <>occurred {model.time(Date.parse(event.occurred_at))}, </>}
      received {model.time(Date.parse(event.received_at))}
    </p>
  );
}

function Event({ model, event }: { model: Model; event: LiveEvent }) {
  return (
    <article>
      <h3>
        <Mark state={event.unrecognised ? 'unrecognised' : event.state} /> {event.event_type || 'unrecognised event'}{' '}
        for {event.object} <small>event {event.id}</small>
      </h3>
      <Times model={model} event={event} />
      {event.journal.length > 0 && (
        <ul class="journal">
          {event.journal.map((attempt, at) => (
            <li key={`${attempt.atMs} ${at}`}>
              <strong>{attempt.reaction}</strong> {attempt.action}: {attempt.outcome}, {attempt.durationMs} ms, at{' '}
              {model.time(attempt.atMs)}
              {attempt.detail !== '' && <pre>{attempt.detail}</pre>}
            </li>
          ))}
        </ul>
      )}
      {event.outputs.map(({ reaction, text }, at) => (
        <div key={`${reaction} ${at}`}>
          <p>Final output of {reaction}:</p>
          <pre>{text}</pre>
        </div>
      ))}
      <details>
        <summary>Payload</summary>
        <pre>{event.content}</pre>
      </details>
    </article>
  );
}
