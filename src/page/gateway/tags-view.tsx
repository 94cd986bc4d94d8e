import { useMemo, useState } from 'preact/hooks';
import { counted, durationText } from '../../base/amounts.ts';
import { TAG_STATES } from '../../ops/live/live-events.ts';
import { Select } from '../parts/choice.tsx';
import { LongList } from '../parts/long-list.tsx';
import { Shape, type ShapeName } from '../parts/shape.tsx';
import { type KnownTag, nameOf, type TagState } from './known-tags.ts';
import type { Model } from './model.ts';
import { addressOf } from './place.ts';
import { readingText } from './reading-text.ts';

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

export function TagsView({ model }: { model: Model }) {
  const [search, setSearch] = useState('');
  const [filter, setFilter] = useState('all');
  const [order, setOrder] = useState<(typeof ORDERS)[number]>('tags.yaml order');
  const { tags } = model;
  const shown = useMemo(
    () =>
      ordered(
        tags.all.filter((tag) => matches(tag, search.toLowerCase(), filter)),
        order,
      ),
    [tags, tags.version, search, filter, order],
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
          {shown.length === tags.all.length ? counted(shown.length, 'value') : `${shown.length} of ${tags.all.length}`}
        </p>
      </div>
      <LongList label="tags" items={shown} rowHeight={ROW_PX}>
        {(tag) => <TagLine model={model} tag={tag} />}
      </LongList>
    </>
  );
}

function TagLine({ model, tag }: { model: Model; tag: KnownTag }) {
  return (
    <a class="tag-line" href={addressOf('tags', nameOf(tag))}>
      <span class="name">
        {tag.tag} <small>{tag.key}</small>
      </span>
      <span class="reading">{readingText(tag)}</span>
      <Sparkline shape={tag.line} />
      <span class="age">{ageText(model, tag)}</span>
      <span class="source">{tag.source ?? 'pushed'}</span>
      <span class={`mark ${tag.state}`}>
        <Shape name={STATE_SHAPES[tag.state]} /> {stateText(tag.state)}
      </span>
    </a>
  );
}

export function ageText({ gatewayMs, wallMs }: Pick<Model, 'gatewayMs' | 'wallMs'>, tag: KnownTag): string {
  if (tag.takenMonotonicMs === null || gatewayMs === undefined) return 'no reading yet';
  return `${durationText(Math.max(0, gatewayMs - wallMs(tag.takenMonotonicMs)) / 1000)} ago`;
}

function matches(tag: KnownTag, search: string, filter: string): boolean {
  if (filter === 'not live' ? tag.state === 'live' : filter !== 'all' && stateText(tag.state) !== filter) return false;
  return search === '' || tag.text.includes(search);
}

function ordered(tags: KnownTag[], order: (typeof ORDERS)[number]): KnownTag[] {
  if (order === 'name') return tags.sort((one, other) => (one.text < other.text ? -1 : 1));
  if (order === 'source') return tags.sort((one, other) => ((one.source ?? '') < (other.source ?? '') ? -1 : 1));
  const weight = (tag: KnownTag) => TAG_STATES.indexOf(tag.state);
  if (order === 'worst first') return tags.sort((one, other) => weight(other) - weight(one) || one.row - other.row);
  const age = (tag: KnownTag) => tag.takenMonotonicMs ?? Number.NEGATIVE_INFINITY;
  return order === 'oldest first' ? tags.sort((one, other) => age(one) - age(other) || one.row - other.row) : tags;
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
