import { durationText } from '../../base/amounts.ts';
import type { Model } from './model.ts';
import { ScrolledTable } from './scrolled-table.tsx';

const GRANTS = { password: 'password', refresh_token: 'refresh', authorization_code: 'sign-in' } as const;

/** Valid access tokens, identified by their fingerprints. */
export function Tokens({ model: { tokens, tick } }: { model: Model }) {
  if (!tokens || !tick) return null;
  return (
    <section>
      <h2 id="tokens">
        Valid tokens <span class="soft">{tokens.alive}</span>
      </h2>
      <ScrolledTable
        of="tokens"
        columns={['Fingerprint', 'User', 'Grant', 'Expires in']}
        empty={tokens.alive === 0 && 'No valid tokens.'}
      >
        {tokens.lines.map(({ fingerprint, user, grant, expiresMs }) => (
          <tr key={fingerprint}>
            <td>
              <code>{fingerprint}</code>
            </td>
            <td>{user}</td>
            <td>{GRANTS[grant]}</td>
            <td>{durationText(Math.max(0, expiresMs - tick.atMs) / 1000)}</td>
          </tr>
        ))}
      </ScrolledTable>
    </section>
  );
}
