import { useState } from 'preact/hooks';
import type { LinkState } from '../stream/live-link.ts';
import type { Model } from './model.ts';

type Refusal = Extract<LinkState, { kind: 'refused' }>;

/** Asks for OPS_TOKEN. It stays in this tab's memory, and goes to the gateway alone, in a header. */
export function TokenForm({ model, refusal }: { model: Model; refusal: Refusal }) {
  const [token, setToken] = useState('');
  const [tried, setTried] = useState(false);
  const isAsked = refusal.status === 401;
  return (
    <main class="asking">
      <h1>tagferry</h1>
      {isAsked ? (
        <form
          onSubmit={(event) => {
            event.preventDefault();
            setTried(true);
            if (token !== '') model.setToken(token.trim());
          }}
        >
          <label for="token">OPS_TOKEN of this gateway</label>
          <input
            id="token"
            type="password"
            autocomplete="off"
            spellcheck={false}
            value={token}
            onInput={(event) => setToken(event.currentTarget.value)}
          />
          <button type="submit">Show</button>
          <p role="status">{(tried || model.hasToken) && 'The gateway did not take it.'}</p>
          <p>
            It stands in agent.env, and is kept in this tab's memory alone. In an address it belongs behind the #:{' '}
            <code>#token=…</code>
          </p>
        </form>
      ) : (
        <>
          <p role="alert">{refusal.error}</p>
          <p>{refusal.hint}</p>
        </>
      )}
    </main>
  );
}
