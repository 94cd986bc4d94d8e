import { useEffect, useLayoutEffect, useReducer, useState } from 'preact/hooks';
import { durationText } from '../../base/amounts.ts';
import type { StatusReport } from '../../ops/status-report.ts';
import { pageMs } from '../stream/live-link.ts';
import { AssetsView } from './assets-view.tsx';
import { DoctorView } from './doctor-view.tsx';
import { EventsView } from './events-view.tsx';
import { FlowPicture } from './flow-picture.tsx';
import { HeldView } from './held-view.tsx';
import { HistoryView } from './history-view.tsx';
import type { KnownTag } from './known-tags.ts';
import { LogView } from './log-view.tsx';
import type { Model } from './model.ts';
import { NowView } from './now-view.tsx';
import { addressOf, placeOf, VIEWS, type View } from './place.ts';
import { TagView } from './tag-view.tsx';
import { TagsView } from './tags-view.tsx';
import { TokenForm } from './token-form.tsx';

const TITLES: Record<View, string> = {
  now: 'Now',
  history: 'History',
  tags: 'Tags',
  events: 'Events',
  assets: 'Assets',
  held: 'Held and rejected',
  log: 'Log',
  doctor: 'Doctor',
};

export function App({ model }: { model: Model }) {
  useModel(model);
  const [place, go] = useState(() => placeOf(window.location.hash));
  useEffect(() => {
    const follow = () => go(placeOf(window.location.hash));
    window.addEventListener('hashchange', follow);
    return () => window.removeEventListener('hashchange', follow);
  }, []);
  const { hello, link, now, tags } = model;
  const tag = place.view === 'tags' && place.of !== undefined ? tags.named(place.of) : undefined;
  useEffect(() => model.select(...subjectsOf(place.view, tag?.row)), [place.view, tag?.row]);
  if (link.kind === 'refused') return <TokenForm model={model} refusal={link} />;
  return (
    <>
      <header>
        <h1>
          tagferry <span class="gateway">{hello?.gateway}</span>
        </h1>
        {now && <State state={now.state} />}
        <GatewayTime model={model} />
      </header>
      <LostBanner model={model} />
      {now && <FlowPicture now={now} />}
      <nav aria-label="views">
        {VIEWS.map((view) => (
          <a key={view} href={addressOf(view)} aria-current={view === place.view ? 'page' : undefined}>
            {TITLES[view]}
          </a>
        ))}
      </nav>
      <main>
        <h2>{TITLES[place.view]}</h2>
        {now ? <Shown model={model} now={now} view={place.view} tag={tag} /> : <p>Loading…</p>}
      </main>
      <footer>{hello && `tagferry ${hello.version}`}</footer>
    </>
  );
}

/** Returns the stream subjects for a view. */
function subjectsOf(view: View, row: number | undefined): string[] {
  if (view === 'tags') return row === undefined ? ['tags'] : ['tags', `tag.${row}`];
  if (view === 'events') return ['events', 'deliveries'];
  return view === 'assets' || view === 'held' || view === 'log' ? [view] : [];
}

function Shown({ model, now, view, tag }: { model: Model; now: StatusReport; view: View; tag: KnownTag | undefined }) {
  switch (view) {
    case 'now':
      return <NowView model={model} now={now} />;
    case 'history':
      return <HistoryView model={model} now={now} />;
    case 'tags':
      return tag ? <TagView model={model} tag={tag} /> : <TagsView model={model} />;
    case 'events':
      return <EventsView model={model} now={now} />;
    case 'assets':
      return <AssetsView model={model} />;
    case 'held':
      return <HeldView model={model} now={now} />;
    case 'log':
      return <LogView model={model} />;
    case 'doctor':
      return <DoctorView model={model} />;
  }
}

function State({ state }: { state: string }) {
  return <p class={`state ${state === 'online' ? 'good' : 'bad'}`}>{state === 'resting' ? 'rate limited' : state}</p>;
}

function GatewayTime({ model }: { model: Model }) {
  const { gatewayMs, time } = model;
  return <p class="clock">{gatewayMs === undefined ? '' : time(gatewayMs)}</p>;
}

/** Shows how long the connection has been lost, by this page's clock. */
function LostBanner({ model: { link, now } }: { model: Model }) {
  const lost = link.kind === 'lost' ? link : undefined;
  return (
    <div role="alert">
      {lost && (
        <p class="lost">
          No response from the gateway for {durationText((pageMs() - lost.sinceMs) / 1000)} ({lost.why}).
          {now && ' The page shows the latest known state.'} Reconnecting…
        </p>
      )}
    </div>
  );
}

/** Triggers a render after each change to the model. */
function useModel(model: Model): Model {
  const [, again] = useReducer((count: number) => count + 1, 0);
  // Before the link starts, because the response to its first request may be the only change.
  useLayoutEffect(() => model.listen(() => again(undefined)), [model]);
  return model;
}
