import { useEffect, useState } from 'preact/hooks';
import { durationText } from '../base/amounts.ts';
import type { Views } from '../ops/live/views.ts';
import type { StatusReport } from '../ops/status-report.ts';
import { AssetsView } from './assets-view.tsx';
import { DoctorView } from './doctor-view.tsx';
import { EventsView } from './events-view.tsx';
import { FlowPicture } from './flow-picture.tsx';
import { type Gateway, gatewayOf } from './gateway.ts';
import { HeldView } from './held-view.tsx';
import { HistoryView } from './history-view.tsx';
import { LogView } from './log-view.tsx';
import { NowView } from './now-view.tsx';
import { addressOf, type Place, placeOf, VIEWS, type View } from './place.ts';
import { type Poll, pageMs, type Token, TokenContext, usePoll } from './poll.ts';
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

/**
 * The page. The token is stored only in this tab's memory; after a reload, the page asks for it again, unless the
 * address contains it.
 */
export function Page({ token: first }: { token: string | undefined }) {
  const [token, setToken] = useState<Token | undefined>(first === undefined ? undefined : { text: first });
  return (
    <TokenContext.Provider value={token}>
      <App hasToken={token !== undefined} signIn={(text) => setToken({ text })} />
    </TokenContext.Provider>
  );
}

function App({ hasToken, signIn }: { hasToken: boolean; signIn(token: string): void }) {
  const poll = usePoll<Views['now']>('live/now');
  const [place, go] = useState(() => placeOf(window.location.hash));
  useEffect(() => {
    const follow = () => go(placeOf(window.location.hash));
    window.addEventListener('hashchange', follow);
    return () => window.removeEventListener('hashchange', follow);
  }, []);
  if (poll.refusal) return <TokenForm refusal={poll.refusal} hasToken={hasToken} signIn={signIn} />;
  const now = poll.data;
  const gateway = now && gatewayOf(now, poll.answeredMs);
  return (
    <>
      <header>
        <h1>
          tagferry <span class="gateway">{now?.gateway}</span>
        </h1>
        {now && <State state={now.status.state} />}
        <p class="clock">{gateway?.time(gateway.nowMs())}</p>
      </header>
      <LostBanner poll={poll} />
      {now && <FlowPicture now={now.status} />}
      <nav aria-label="views">
        {VIEWS.map((view) => (
          <a key={view} href={addressOf(view)} aria-current={view === place.view ? 'page' : undefined}>
            {TITLES[view]}
          </a>
        ))}
      </nav>
      <main>
        <h2>{TITLES[place.view]}</h2>
        {gateway ? <Shown gateway={gateway} now={now.status} place={place} /> : <p>Loading…</p>}
      </main>
      <footer>{now && `tagferry ${now.version}`}</footer>
    </>
  );
}

function Shown({ gateway, now, place }: { gateway: Gateway; now: StatusReport; place: Place }) {
  switch (place.view) {
    case 'now':
      return <NowView gateway={gateway} now={now} />;
    case 'history':
      return <HistoryView gateway={gateway} now={now} />;
    case 'tags':
      if (place.of === undefined) return <TagsView gateway={gateway} />;
      return <TagView key={place.of} gateway={gateway} name={place.of} />;
    case 'events':
      return <EventsView gateway={gateway} now={now} />;
    case 'assets':
      return <AssetsView gateway={gateway} />;
    case 'held':
      return <HeldView gateway={gateway} now={now} />;
    case 'log':
      return <LogView gateway={gateway} />;
    case 'doctor':
      return <DoctorView gateway={gateway} />;
  }
}

function State({ state }: { state: string }) {
  return <p class={`state ${state === 'online' ? 'good' : 'bad'}`}>{state === 'resting' ? 'rate limited' : state}</p>;
}

/** Shows how long the gateway has not responded, by this page's clock. */
function LostBanner({ poll }: { poll: Poll<unknown> }) {
  return (
    <div role="alert">
      {poll.problem !== undefined && (
        <p class="lost">
          No data from the gateway for {durationText((pageMs() - poll.answeredMs) / 1000)} ({poll.problem}).
          {poll.data !== undefined && ' The page shows the latest known state.'} Reconnecting…
        </p>
      )}
    </div>
  );
}
