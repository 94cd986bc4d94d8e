import type { Happening, Model } from './model.ts';
import { ScrolledTable } from './scrolled-table.tsx';
import { timeText } from './text.ts';

/** Requests and other actions, newest first. */
export function Happenings({ model: { happenings } }: { model: Model }) {
  return (
    <section>
      <h2 id="requests">Requests</h2>
      <ScrolledTable
        of="requests"
        columns={['Time', 'User', 'Request', 'Response', 'Duration']}
        empty={happenings.length === 0 && 'No requests yet.'}
      >
        {happenings.map((happening) => (
          <Row key={happening.id} happening={happening} />
        ))}
      </ScrolledTable>
    </section>
  );
}

function Row({ happening }: { happening: Happening }) {
  if (happening.kind === 'sentence') {
    return (
      <tr class="sentence">
        <td>{timeText(Date.parse(happening.at))}</td>
        <td colSpan={4}>{happening.text}</td>
      </tr>
    );
  }
  const { at, user, story, method, path, status, durationMs, refused, fault } = happening.request;
  return (
    <tr>
      <td>{timeText(Date.parse(at))}</td>
      <td>{user ?? ''}</td>
      <td>{story ?? `${method} ${path}`}</td>
      <td class={status > 0 && status < 400 ? 'good' : 'bad'}>
        {status === 0 ? 'none' : status}
        {refused !== undefined && `, ${refused}`}
        {fault !== undefined && ` (${fault})`}
      </td>
      <td>{durationMs} ms</td>
    </tr>
  );
}
