import { useLayoutEffect, useReducer } from 'preact/hooks';
import { durationText } from '../../base/amounts.ts';
import { pageMs } from '../stream/live-link.ts';
import { FaultButtons } from './fault-buttons.tsx';
import { Happenings } from './happenings.tsx';
import type { Model } from './model.ts';
import { SeriesPanel } from './series-panel.tsx';
import { SiteList } from './site-list.tsx';
import { timeText } from './text.ts';
import { Tokens } from './tokens.tsx';
import { Webhooks } from './webhooks.tsx';

export function App({ model }: { model: Model }) {
  const [, again] = useReducer((count: number) => count + 1, 0);
  // Before the link starts, because the response to its first request may be the only change.
  useLayoutEffect(() => model.listen(() => again(undefined)), [model]);
  const { faults, tick, link, refusal } = model;
  return (
    <>
      <header>
        <h1>
          tagferry sandbox <span class="soft">platform simulator</span>
        </h1>
        {faults && (
          <p class={`state ${faults.outage === null ? 'good' : 'bad'}`}>
            {faults.outage === null ? 'available' : outageText(faults.outage)}
          </p>
        )}
        {tick && (
          <p class="clock">
            {tick.received} values, {tick.requests} requests, {timeText(tick.atMs)} UTC
            {tick.speed !== 1 && `, speed ×${tick.speed}`}
          </p>
        )}
      </header>
      <div role="alert">
        {link.kind === 'lost' && (
          <p class="lost">
            No response from the sandbox for {durationText((pageMs() - link.sinceMs) / 1000)}. Reconnecting…
          </p>
        )}
        {refusal !== undefined && <p class="lost">Failed: {refusal}</p>}
      </div>
      <main>
        <FaultButtons model={model} />
        <div class="site">
          <SiteList model={model} />
          <SeriesPanel model={model} />
        </div>
        <Happenings model={model} />
        <div class="pair">
          <Webhooks model={model} />
          <Tokens model={model} />
        </div>
      </main>
    </>
  );
}

function outageText(outage: 'refuse' | 'drop' | { status: number }): string {
  return typeof outage === 'string' ? 'unavailable' : `all responses have status ${outage.status}`;
}
