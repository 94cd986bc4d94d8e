import { useState } from 'preact/hooks';
import { durationText } from '../../base/amounts.ts';
import type { SeriesLine, SiteView } from '../../sandbox/live/sandbox-events.ts';
import type { Model } from './model.ts';
import { valueText } from './text.ts';

/** Maximum number of rows. Other assets can be found with the search. */
const MAX_ROWS = 200;

/** Assets with their tags and latest values. */
export function SiteList({ model }: { model: Model }) {
  const [search, setSearch] = useState('');
  const { site, tick, chosen } = model;
  if (!site) return <p>Loading…</p>;
  const text = search.trim().toLowerCase();
  const byAsset = new Map<number, SeriesLine[]>();
  for (const line of model.series.values()) byAsset.set(line.asset, [...(byAsset.get(line.asset) ?? []), line]);
  const rows = site.assets
    .map((asset) => ({ ...asset, tags: tagsOf(site, asset.id), lines: byAsset.get(asset.id) ?? [] }))
    .filter((row) => `${row.id} ${row.serial} ${row.description} ${row.tags}`.toLowerCase().includes(text));
  return (
    <section class="list" aria-labelledby="site">
      <h2 id="site">Site</h2>
      <label>
        <span class="unseen">Search assets and tags</span>
        <input
          type="search"
          placeholder="Search assets and tags"
          value={search}
          onInput={(event) => setSearch(event.currentTarget.value)}
        />
      </label>
      <ul class="rows">
        {rows.slice(0, MAX_ROWS).map(({ id, serial, description, tags, lines }) => (
          <li key={id}>
            <button type="button" aria-pressed={chosen?.asset === id} onClick={() => model.choose(id)}>
              <strong>{tags || serial}</strong>
              <span class="soft">
                asset {id}, {description || serial}
              </span>
              {lines.map((line) => (
                <Last key={line.key} line={line} units={site.units} atMs={tick?.atMs} />
              ))}
            </button>
          </li>
        ))}
      </ul>
      <p class="soft" role="status">
        {rows.length > MAX_ROWS && `${rows.length - MAX_ROWS} more. Use the search to find them. `}
        {site.unshown > 0 && `${site.unshown} more objects are not shown.`}
        {rows.length === 0 && 'No matches.'}
      </p>
    </section>
  );
}

function Last({ line, units, atMs }: { line: SeriesLine; units: SiteView['units']; atMs: number | undefined }) {
  const { key, last } = line;
  if (!last) return null;
  const ageS = atMs === undefined ? undefined : Math.max(0, (atMs - last.timestampMs) / 1000);
  return (
    <span class="last">
      <span>{key}</span>
      <span>
        {valueText(last.value)} {units[last.unit ?? ''] ?? ''}
        {ageS !== undefined && <span class="soft"> {durationText(ageS)}</span>}
      </span>
    </span>
  );
}

export function tagsOf(site: SiteView, asset: number): string {
  return site.instrumentations
    .filter(({ assets }) => assets.includes(asset))
    .map(({ tag }) => tag)
    .join(', ');
}
