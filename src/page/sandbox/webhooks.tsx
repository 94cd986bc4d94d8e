import { counted, durationText } from '../../base/amounts.ts';
import type { DeliveryLine } from '../../sandbox/live/sandbox-events.ts';
import type { Model } from './model.ts';
import { ScrolledTable } from './scrolled-table.tsx';
import { timeText } from './text.ts';

/** Webhooks and their deliveries. */
export function Webhooks({ model }: { model: Model }) {
  const { webhooks, deliveries, tick } = model;
  return (
    <section aria-labelledby="webhooks">
      <h2 id="webhooks">Webhooks</h2>
      <ul class="others">
        {webhooks.map(({ id, url, eventTypes, isDisabled }) => (
          <li key={id}>
            {id}: <code>{url}</code>, {counted(eventTypes.length, 'event type')}
            {isDisabled && <strong class="bad"> disabled</strong>}
          </li>
        ))}
      </ul>
      {webhooks.length === 0 && <p class="soft">No webhooks registered.</p>}
      <h3 id="deliveries">Deliveries</h3>
      <ScrolledTable
        of="deliveries"
        columns={['Time', 'Event type', 'Webhook', 'Status', 'Attempts', 'Retry']}
        empty={deliveries.length === 0 && 'No deliveries yet.'}
      >
        {deliveries.map((delivery) => (
          <Row key={delivery.id} delivery={delivery} atMs={tick?.atMs ?? 0} model={model} />
        ))}
      </ScrolledTable>
    </section>
  );
}

function Row({ delivery, atMs, model }: { delivery: DeliveryLine; atMs: number; model: Model }) {
  const { id, webhook, eventType, createdMs, status, attempts, lastAnswer, nextMs } = delivery;
  return (
    <tr>
      <td>{timeText(createdMs)}</td>
      <td>{eventType}</td>
      <td>webhook {webhook}</td>
      <td class={status === 'delivered' ? 'good' : status === 'pending' ? 'wait' : 'bad'}>{status}</td>
      <td>
        {attempts}
        {lastAnswer !== undefined && `, latest response ${lastAnswer}`}
      </td>
      <td>
        {status === 'pending' ? (
          nextMs !== undefined && `in ${durationText(Math.max(0, nextMs - atMs) / 1000)}`
        ) : (
          <button type="button" onClick={() => void model.act('POST', 'deliveries/resend', { ids: [id] })}>
            Resend <span class="unseen">delivery {id}</span>
          </button>
        )}
      </td>
    </tr>
  );
}
