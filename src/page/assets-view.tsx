import { useMemo, useState } from 'preact/hooks';
import type { ObjectLine } from '../access/access-table.ts';
import { counted, countText } from '../base/amounts.ts';
import type { Views } from '../ops/live/views.ts';
import type { Gateway } from './gateway.ts';
import { Copyable } from './parts/copyable.tsx';
import { LongList } from './parts/long-list.tsx';
import { Shape, type ShapeName } from './parts/shape.tsx';
import { usePoll } from './poll.ts';
import { PollState, TokenRequired } from './poll-state.tsx';

const ROW_PX = 48;
/** Objects change rarely, and the list is long. */
const EVERY_MS = 5_000;
const SHAPES: Record<ObjectLine['state'], ShapeName> = { visible: 'ok', lost: 'held', posted: 'flows' };
const CLASSES: Record<ObjectLine['state'], string> = { visible: 'live', lost: 'held', posted: 'live' };

/** Known assets, instrumentations and nodes, with a search field. */
export function AssetsView({ gateway }: { gateway: Gateway }) {
  const [search, setSearch] = useState('');
  const isStatusOnly = gateway.sight === 'status';
  const poll = usePoll<Views['assets']>(isStatusOnly ? undefined : 'live/assets', { everyMs: EVERY_MS });
  const shown = useMemo(() => (poll.data?.objects ?? []).filter((one) => matches(one, search)), [poll.data, search]);
  if (isStatusOnly) return <TokenRequired what="Known assets" />;
  if (!poll.data) return <PollState poll={poll} />;
  const { objects, total } = poll.data;
  return (
    <>
      <PollState poll={poll} />
      <div class="tools">
        <input
          type="search"
          aria-label="Search IDs, serial numbers, tags and names"
          placeholder="Search"
          value={search}
          onInput={(event) => setSearch(event.currentTarget.value)}
        />
        <p role="status">
          {shown.length === total ? counted(total, 'object') : `${countText(shown.length)} of ${countText(total)}`}
        </p>
      </div>
      {objects.length < total && (
        <>
          <p>Showing the {countText(objects.length)} most recently seen objects. To search all objects, run:</p>
          <Copyable text={`tagferry assets ${search === '' ? 'TEXT' : `'${search.replaceAll("'", "'\\''")}'`}`} />
        </>
      )}
      {total === 0 && (
        <p>No known objects yet. The agent learns about objects from access events and accepted posts.</p>
      )}
      <LongList label="assets" items={shown} rowHeight={ROW_PX}>
        {(one) => <Line gateway={gateway} object={one} />}
      </LongList>
    </>
  );
}

function Line({ gateway, object }: { gateway: Gateway; object: ObjectLine }) {
  const { kind, id, serial_number, tag, name, state, last_seen } = object;
  return (
    <div class="asset-line">
      <span>
        {id} <small>{kind}</small>
      </span>
      <span>{[tag, serial_number].filter((one) => one !== null).join(', ') || '-'}</span>
      <span class="source">{name ?? ''}</span>
      <span class="age">{gateway.time(Date.parse(last_seen))}</span>
      <span class={`mark ${CLASSES[state]}`}>
        <Shape name={SHAPES[state]} /> {state}
      </span>
    </div>
  );
}

function matches({ id, serial_number, tag, name }: ObjectLine, search: string): boolean {
  const text = search.toLowerCase();
  return [String(id), serial_number, tag, name].some((one) => one?.toLowerCase().includes(text));
}
