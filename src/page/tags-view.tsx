import { useMemo, useState } from 'preact/hooks';
import { counted, durationText } from '../base/amounts.ts';
import { TAG_STATES, type TagReading, type TagRow, type Views } from '../ops/live/views.ts';
import type { Gateway } from './gateway.ts';
import { Select } from './parts/choice.tsx';
import { LongList } from './parts/long-list.tsx';
import { Shape, type ShapeName } from './parts/shape.tsx';
import { addressOf } from './place.ts';
import { usePoll } from './poll.ts';
import { PollState } from './poll-state.tsx';
import { readingText } from './reading-text.ts';

type TagState = (typeof TAG_STATES)[number];

interface KnownTag extends TagRow {
  /** Searchable text in lower case. */
  text: string;
  value: number | null;
  raw: number | null;
  timeAtMs: number | null;
  takenMonotonicMs: number | null;
  state: TagState;
  line: string;
}

export function knownTag(row: TagRow, reading: TagReading): KnownTag {
  const [value, raw, timeAtMs, takenMonotonicMs, state, line] = reading;
  const text = `${row.tag} ${row.key} ${row.source ?? 'push'} ${row.asset}`.toLowerCase();
  return { ...row, text, value, raw, timeAtMs, takenMonotonicMs, state: TAG_STATES[state]!, line };
}

/** Adds the configuration and readings of some rows to the previous ones. */
function merge(before: KnownTag[] | undefined, { whole, first, rows, readings }: Views['tags']): KnownTag[] {
  const tags = whole || !before ? [] : [...before];
  for (const [at, reading] of readings.entries()) {
    const row = rows[at] ?? tags[first + at];
    if (row) tags[first + at] = knownTag(row, reading);
  }
  return tags;
}

/** Returns the text for a state. */
export const stateText = (state: TagState): string => (state === 'refused' ? 'rejected' : state);

const FILTERS: readonly string[] = ['all', 'not live', ...TAG_STATES.map(stateText)];
const ORDERS = ['tags.yaml order', 'name', 'worst first', 'oldest first', 'source'] as const;
const ROW_PX = 48;

export const STATE_SHAPES: Record<TagState, ShapeName> = {
  live: 'flows',
  silent: 'waits',
  held: 'held',
  refused: 'refused',
  quarantined: 'warning',
};

export function TagsView({ gateway }: { gateway: Gateway }) {
  const [search, setSearch] = useState('');
  const [filter, setFilter] = useState('all');
  const [order, setOrder] = useState<(typeof ORDERS)[number]>('tags.yaml order');
  const poll = usePoll<Views['tags'], KnownTag[]>('live/tags', { merge });
  const tags = poll.data ?? [];
  const shown = useMemo(
    () =>
      ordered(
        tags.filter((tag) => matches(tag, search.toLowerCase(), filter)),
        order,
      ),
    [poll.data, search, filter, order],
  );
  return (
    <>
      <div class="tools">
        <input
          type="search"
          aria-label="Search tags, keys, sources and assets"
          placeholder="Search"
          value={search}
          onInput={(event) => setSearch(event.currentTarget.value)}
        />
        <Select label="Show" options={FILTERS} chosen={filter} choose={(option) => setFilter(option)} />
        <Select label="Order" options={ORDERS} chosen={order} choose={(option) => setOrder(option)} />
        <p role="status">
          {shown.length === tags.length ? counted(shown.length, 'value') : `${shown.length} of ${tags.length}`}
        </p>
      </div>
      <PollState poll={poll} />
      <LongList label="tags" items={shown} rowHeight={ROW_PX}>
        {(tag) => <TagLine gateway={gateway} tag={tag} />}
      </LongList>
    </>
  );
}

function TagLine({ gateway, tag }: { gateway: Gateway; tag: KnownTag }) {
  return (
    <a class="tag-line" href={addressOf('tags', `${tag.tag}/${tag.key}`)}>
      <span class="name">
        {tag.tag} <small>{tag.key}</small>
      </span>
      <span class="reading">{readingText(tag)}</span>
      <Sparkline shape={tag.line} />
      <span class="age">{ageText(gateway, tag)}</span>
      <span class="source">{tag.source ?? 'pushed'}</span>
      <span class={`mark ${tag.state}`}>
        <Shape name={STATE_SHAPES[tag.state]} /> {stateText(tag.state)}
      </span>
    </a>
  );
}

export function ageText({ nowMs, wallMs }: Gateway, tag: KnownTag): string {
  if (tag.takenMonotonicMs === null) return 'no reading yet';
  return `${durationText(Math.max(0, nowMs() - wallMs(tag.takenMonotonicMs)) / 1000)} ago`;
}

function matches(tag: KnownTag, search: string, filter: string): boolean {
  if (filter === 'not live' ? tag.state === 'live' : filter !== 'all' && stateText(tag.state) !== filter) return false;
  return search === '' || tag.text.includes(search);
}

function ordered(tags: KnownTag[], order: (typeof ORDERS)[number]): KnownTag[] {
  if (order === 'name') return tags.sort((one, other) => (one.text < other.text ? -1 : 1));
  if (order === 'source') return tags.sort((one, other) => ((one.source ?? '') < (other.source ?? '') ? -1 : 1));
  const weight = (tag: KnownTag) => TAG_STATES.indexOf(tag.state);
  if (order === 'worst first') return tags.sort((one, other) => weight(other) - weight(one));
  const age = (tag: KnownTag) => tag.takenMonotonicMs ?? Number.NEGATIVE_INFINITY;
  return order === 'oldest first' ? tags.sort((one, other) => age(one) - age(other)) : tags;
}

/** Sparkline of the latest readings, encoded as base-36 digits with `0` as the minimum. */
function Sparkline({ shape }: { shape: string }) {
  const step = 96 / Math.max(1, shape.length - 1);
  const points = [...shape].map((letter, at) => `${2 + at * step},${22 - Number.parseInt(letter, 36) * 0.57}`);
  return (
    <svg class="small-line" viewBox="0 0 100 24" preserveAspectRatio="none" aria-hidden="true">
      {points.length > 1 && <polyline points={points.join(' ')} />}
    </svg>
  );
}
