import { useMemo, useState } from 'preact/hooks';
import { counted, durationText } from '../../base/amounts.ts';
import { TAG_STATES } from '../../ops/live/live-events.ts';
import { Select } from '../parts/choice.tsx';
import { LongList } from '../parts/long-list.tsx';
import { Shape, type ShapeName } from '../parts/shape.tsx';
import { SmallLine } from '../parts/small-line.tsx';
import { type KnownTag, nameOf, type TagState } from './known-tags.ts';
import type { Model } from './model.ts';
import { addressOf } from './place.ts';
import { readingText } from './reading-text.ts';

const FILTERS = ['all', 'not live', ...TAG_STATES] as const;
const ORDERS = ['as in tags.yaml', 'name', 'worst first', 'oldest first', 'source'] as const;
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
  const [filter, setFilter] = useState<(typeof FILTERS)[number]>('all');
  const [order, setOrder] = useState<(typeof ORDERS)[number]>('as in tags.yaml');
  const { tags } = model;
  const shown = useMemo(
    () =>
      ordered(
        tags.all.filter((tag) => isMeant(tag, search.toLowerCase(), filter)),
        order,
      ),
    [tags, tags.version, search, filter, order],
  );
  return (
    <>
      <div class="tools">
        <input
          type="search"
          aria-label="search tags, keys, sources and assets"
          placeholder="search"
          value={search}
          onInput={(event) => setSearch(event.currentTarget.value)}
        />
        <Select label="show" options={FILTERS} chosen={filter} choose={(option) => setFilter(option)} />
        <Select label="order" options={ORDERS} chosen={order} choose={(option) => setOrder(option)} />
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
      <SmallLine shape={tag.line} />
      <span class="age">{ageText(model, tag)}</span>
      <span class="source">{tag.source ?? 'pushed'}</span>
      <span class={`mark ${tag.state}`}>
        <Shape name={STATE_SHAPES[tag.state]} /> {tag.state}
      </span>
    </a>
  );
}

export function ageText({ gatewayMs, wallMs }: Pick<Model, 'gatewayMs' | 'wallMs'>, tag: KnownTag): string {
  if (tag.takenMonotonicMs === null || gatewayMs === undefined) return 'nothing yet';
  return `${durationText(Math.max(0, gatewayMs - wallMs(tag.takenMonotonicMs)) / 1000)} ago`;
}

function isMeant(tag: KnownTag, search: string, filter: (typeof FILTERS)[number]): boolean {
  if (filter === 'not live' ? tag.state === 'live' : filter !== 'all' && tag.state !== filter) return false;
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
