import { useState } from 'preact/hooks';
import type { Chosen, Model } from './model.ts';
import { valueText } from './text.ts';

/** List of the selected series' thresholds, with a form to add one. */
export function Thresholds({ model, chosen }: { model: Model; chosen: Chosen }) {
  const [type, setType] = useState<'high' | 'low'>('high');
  const [value, setValue] = useState('');
  const lines = model.chart?.thresholds ?? [];
  const instrumentation = model.site?.instrumentations.find(({ assets }) => assets.includes(chosen.asset));
  const add = (event: Event) => {
    event.preventDefault();
    const unit = model.lineOf(chosen)?.last?.unit;
    const threshold = { instrumentation: instrumentation?.id, type, value: Number(value), key: chosen.key };
    void model.act('POST', 'thresholds', unit === undefined ? threshold : { ...threshold, unit });
  };
  return (
    <div class="thresholds">
      <ul class="others">
        {lines.map(({ threshold, scaling }) => (
          <li key={threshold.id}>
            {threshold.name}
            {threshold.name.includes(threshold.type) ? '' : `, ${threshold.type}`}: {valueText(threshold.value)}{' '}
            {model.site?.units[threshold.unit ?? ''] ?? ''}
            {scaling === undefined && ', in a unit of a different physical quantity'}{' '}
            <button type="button" onClick={() => void model.act('DELETE', `thresholds/${threshold.id}`)}>
              Remove <span class="unseen">{threshold.name}</span>
            </button>
          </li>
        ))}
      </ul>
      {instrumentation ? (
        <form onSubmit={add}>
          <label>
            New threshold{' '}
            <select value={type} onChange={(event) => setType(event.currentTarget.value === 'low' ? 'low' : 'high')}>
              <option value="high">high</option>
              <option value="low">low</option>
            </select>
          </label>
          <label>
            <span class="unseen">Value of the new threshold</span>
            <input
              type="number"
              step="any"
              required
              value={value}
              onInput={(event) => setValue(event.currentTarget.value)}
            />
          </label>
          <button type="submit">Add</button>
        </form>
      ) : (
        <p class="soft">No thresholds, because no instrumentation is assigned to this asset.</p>
      )}
    </div>
  );
}
