import { useEffect, useState } from 'preact/hooks';
import { durationText } from '../../base/amounts.ts';
import { FlowPicture } from './flow-picture.tsx';
import type { Model } from './model.ts';
import { NowView } from './now-view.tsx';
import { placeOf, VIEWS, type View } from './place.ts';
import { TokenForm } from './token-form.tsx';
import { useModel } from './use-model.ts';

const TITLES: Record<View, string> = { now: 'Now' };

export function App({ model }: { model: Model }) {
  useModel(model);
  const [place, go] = useState(() => placeOf(window.location.hash));
  useEffect(() => {
    const follow = () => go(placeOf(window.location.hash));
    window.addEventListener('hashchange', follow);
    return () => window.removeEventListener('hashchange', follow);
  }, []);
  const { hello, link, now } = model;
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
          <a key={view} href={`#${view}`} aria-current={view === place.view ? 'page' : undefined}>
            {TITLES[view]}
          </a>
        ))}
      </nav>
      <main>
        <h2>{TITLES[place.view]}</h2>
        {now ? <NowView model={model} now={now} /> : <p>Asking the gateway…</p>}
      </main>
      <footer>{hello && `tagferry ${hello.version}`}</footer>
    </>
  );
}

function State({ state }: { state: string }) {
  return <p class={`state ${state === 'online' ? 'good' : 'bad'}`}>{state}</p>;
}

function GatewayTime({ model }: { model: Model }) {
  const { gatewayMs, time } = model;
  return <p class="clock">{gatewayMs === undefined ? '' : time(gatewayMs)}</p>;
}

/** Since when nothing comes, by this page's own clock, which nobody moves. */
function LostBanner({ model: { link, now } }: { model: Model }) {
  const lost = link.kind === 'lost' ? link : undefined;
  return (
    <div role="alert">
      {lost && (
        <p class="lost">
          The gateway does not answer, since {durationText((performance.now() - lost.sinceMs) / 1000)} ({lost.why}).
          {now && ' What stands here is what it said last.'} It is looked for again and again.
        </p>
      )}
    </div>
  );
}
