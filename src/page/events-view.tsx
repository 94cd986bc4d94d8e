import { counted, countText } from '../base/amounts.ts';
import type { LiveEvent, Views } from '../ops/live/views.ts';
import type { StatusReport } from '../ops/status-report.ts';
import type { RecentDeliveries } from '../webhook/deliveries.ts';
import type { Gateway } from './gateway.ts';
import { Shape, type ShapeName } from './parts/shape.tsx';
import { usePoll } from './poll.ts';
import { PollState, TokenRequired } from './poll-state.tsx';

const SHAPES: Readonly<Record<string, ShapeName>> = {
  received: 'waits',
  running: 'flows',
  done: 'ok',
  failed: 'warning',
  dead: 'failure',
};

/** Inbox events with the results of their reactions. */
export function EventsView({ gateway, now }: { gateway: Gateway; now: StatusReport }) {
  const isStatusOnly = gateway.sight === 'status';
  const poll = usePoll<Views['events']>(isStatusOnly ? undefined : 'live/events');
  if (isStatusOnly) {
    return (
      <>
        <TokenRequired what="Event payloads and reaction results" />
        {now.events.map((event) => (
          <article key={event.id}>
            <h3>
              <Mark state={event.state} /> {event.event_type}
            </h3>
            <Times gateway={gateway} event={event} />
          </article>
        ))}
      </>
    );
  }
  if (!poll.data) return <PollState poll={poll} />;
  const { events, received, deliveries } = poll.data;
  const rejected = Object.entries(poll.data.rejected).filter(([, count]) => count > 0);
  return (
    <>
      <PollState poll={poll} />
      <p>
        {counted(received, 'event')} received since the agent started.{' '}
        {rejected.length === 0
          ? 'No requests rejected.'
          : `Rejected: ${rejected.map(([why, count]) => `${countText(count)} ${why.replaceAll('_', ' ')}`).join(', ')}.`}
      </p>
      <div class="stack">
        {events.map((event) => (
          <Event key={event.id} gateway={gateway} event={event} />
        ))}
        {events.length === 0 && <p>No events yet.</p>}
      </div>
      <Deliveries gateway={gateway} deliveries={deliveries} />
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

function Times({ gateway, event }: { gateway: Gateway; event: Pick<LiveEvent, 'occurred_at' | 'received_at'> }) {
  return (
    <p>
      {event.occurred_at && <>occurred {gateway.time(Date.parse(event.occurred_at))}, </>}
      received {gateway.time(Date.parse(event.received_at))}
    </p>
  );
}

function Event({ gateway, event }: { gateway: Gateway; event: LiveEvent }) {
  return (
    <article>
      <h3>
        <Mark state={event.unrecognised ? 'unrecognised' : event.state} /> {event.event_type || 'unrecognised event'}{' '}
        for {event.object} <small>event {event.id}</small>
      </h3>
      <Times gateway={gateway} event={event} />
      {event.journal.length > 0 && (
        <ul class="journal">
          {event.journal.map((attempt, at) => (
            <li key={`${attempt.atMs} ${at}`}>
              <strong>{attempt.reaction}</strong> {attempt.action}: {attempt.outcome}, {attempt.durationMs} ms, at{' '}
              {gateway.time(attempt.atMs)}
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

/** Deliveries that the platform lists for this gateway's webhook. */
function Deliveries({ gateway, deliveries }: { gateway: Gateway; deliveries: RecentDeliveries }) {
  return (
    <div>
      <h3 id="deliveries">Deliveries on the platform</h3>
      {deliveries.problem !== null && <p class="bad">Failed to read deliveries: {deliveries.problem}</p>}
      {deliveries.listing ? (
        <Listing gateway={gateway} readAtMs={deliveries.readAtMs} listing={deliveries.listing} />
      ) : (
        deliveries.problem === null && <p>Loading…</p>
      )}
    </div>
  );
}

interface ListingProps {
  gateway: Gateway;
  readAtMs: number | null;
  listing: NonNullable<RecentDeliveries['listing']>;
}

function Listing({ gateway, readAtMs, listing }: ListingProps) {
  const { deliveries, total, webhook } = listing;
  if (deliveries.length === 0) return <p>No deliveries of webhook {webhook}.</p>;
  return (
    <>
      <p>
        {deliveries.length} of {total} deliveries of webhook {webhook}
        {readAtMs !== null && <>, as of {gateway.time(readAtMs)}</>}. To send failed deliveries again, run{' '}
        <code>tagferry webhook resend --all-failed</code>.
      </p>
      {/* biome-ignore lint/a11y/noNoninteractiveTabindex: a scrollable region must be reachable by keyboard */}
      <section class="wide" tabIndex={0} aria-labelledby="deliveries">
        <table>
          <thead>
            <tr>
              <th scope="col">Delivery</th>
              <th scope="col">Status</th>
              <th scope="col">Event type</th>
              <th scope="col">Latest attempt</th>
              <th scope="col">Attempts</th>
              <th scope="col">Response</th>
              <th scope="col">Days left</th>
            </tr>
          </thead>
          <tbody>
            {deliveries.map((each) => (
              <tr key={each.id}>
                <td>{each.id}</td>
                <td class={each.status === 'failed' ? 'bad' : ''}>{each.status}</td>
                <td>{each.event_type ?? '-'}</td>
                <td>{each.last_send_at === null ? '-' : gateway.time(Date.parse(each.last_send_at))}</td>
                <td>{each.attempts ?? '-'}</td>
                <td>{each.response ?? '-'}</td>
                <td>{each.days_left ?? '-'}</td>
              </tr>
            ))}
          </tbody>
        </table>
      </section>
    </>
  );
}
