import { useState } from 'preact/hooks';
import type { Refusal } from './poll.ts';

export interface TokenFormProps {
  refusal: Refusal;
  /** Whether the gateway rejected a token. */
  hasToken: boolean;
  signIn(token: string): void;
}

/** Asks for OPS_TOKEN, which is stored only in this tab's memory and sent to the gateway in a header. */
export function TokenForm({ refusal, hasToken, signIn }: TokenFormProps) {
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
            if (token !== '') signIn(token.trim());
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
          <button type="submit">Sign in</button>
          <p role="status">{(tried || hasToken) && 'Token rejected.'}</p>
          <p>
            The token is in agent.env or in the service's credentials. This page stores the token only in the memory of
            this tab. To open the page with a token, add <code>#token=…</code> to the URL.
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
