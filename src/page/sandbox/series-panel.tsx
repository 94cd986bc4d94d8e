import type { Chosen, Model } from './model.ts';
import { Permissions } from './permissions.tsx';
import { tagsOf } from './site-list.tsx';
import { ThresholdChart } from './threshold-chart.tsx';
import { Thresholds } from './thresholds.tsx';

/** The selected asset: chart, thresholds and permissions. */
export function SeriesPanel({ model }: { model: Model }) {
  const { chosen, site } = model;
  if (!site) return null;
  if (!chosen) return <p class="soft">No values yet. Select an asset, or wait for the first value.</p>;
  const asset = site.assets.find(({ id }) => id === chosen.asset);
  const title = tagsOf(site, chosen.asset) || asset?.serial || `asset ${chosen.asset}`;
  return (
    <section class="panel" aria-labelledby="panel">
      <h2 id="panel">
        {title} {chosen.key && <span class="soft">{chosen.key}</span>}
      </h2>
      <Keys model={model} chosen={chosen} />
      {chosen.key === '' ? (
        <p>No values yet.</p>
      ) : (
        <>
          <ThresholdChart key={`${chosen.asset} ${chosen.key}`} model={model} title={title} chosen={chosen} />
          <Thresholds model={model} chosen={chosen} />
        </>
      )}
      <Permissions model={model} site={site} asset={chosen.asset} />
    </section>
  );
}

function Keys({ model, chosen }: { model: Model; chosen: Chosen }) {
  const keys = model.keysOf(chosen.asset);
  if (keys.length < 2) return null;
  return (
    <div class="buttons">
      {keys.map((key) => (
        <button
          type="button"
          key={key}
          aria-pressed={key === chosen.key}
          onClick={() => model.choose(chosen.asset, key)}
        >
          {key}
        </button>
      ))}
    </div>
  );
}
