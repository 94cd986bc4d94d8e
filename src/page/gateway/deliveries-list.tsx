import type { Model } from './model.ts';

/** Deliveries that the platform lists for this gateway's webhook. */
export function DeliveriesList({ model }: { model: Model }) {
  const { deliveries } = model;
  return (
    <div>
      <h3 id="deliveries">Deliveries on the platform</h3>
      {deliveries?.problem != null && <p class="bad">Failed to read deliveries: {deliveries.problem}</p>}
      {deliveries?.listing ? (
        <Listing model={model} readAtMs={deliveries.readAtMs} listing={deliveries.listing} />
      ) : (
        deliveries?.problem == null && <p>Loading…</p>
      )}
    </div>
  );
}

type Known = NonNullable<Model['deliveries']>;

function Listing({
  model,
  readAtMs,
  listing,
}: {
  model: Model;
  readAtMs: Known['readAtMs'];
  listing: NonNullable<Known['listing']>;
}) {
  const { deliveries, total, webhook } = listing;
  if (deliveries.length === 0) return <p>No deliveries of webhook {webhook}.</p>;
  return (
    <>
      <p>
        {deliveries.length} of {total} deliveries of webhook {webhook}
        {readAtMs !== null && <>, as of {model.time(readAtMs)}</>}. To send failed deliveries again, run{' '}
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
                <td>{each.last_send_at === null ? '-' : model.time(Date.parse(each.last_send_at))}</td>
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
