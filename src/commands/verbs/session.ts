import type { Command } from 'commander';
import { durationText } from '../../base/amounts.ts';
import { jsonText, plain } from '../../base/foreign-text.ts';
import { table } from '../../base/table.ts';
import { noTokenState } from '../../platform/response-meanings.ts';
import type { sessionReport } from '../../platform/session/session-report.ts';
import { agentOf, askAgent } from '../connection/control-client.ts';

type SessionReport = ReturnType<typeof sessionReport>;

/** Adds `tagferry session`. Tokens are never printed in full. */
export function define(program: Command): void {
  const session = program
    .command('session')
    .description("show, renew or revoke the technical user's session; tokens are never printed in full");
  const add = (name: string, description: string, done: string) =>
    session
      .command(name)
      .description(description)
      .option('--json', 'print the session as JSON')
      .action(async (flags: { json?: boolean }) => {
        const place = agentOf(program);
        const now = await askAgent<SessionReport>(place, `session/${name}`);
        process.stdout.write(`${flags.json ? jsonText(now) : `${done}${sessionText(now)}`}\n`);
        if (!now.usable) process.exitCode = 1;
      });
  add('show', 'show state, grant, age and renewal time; exit status 1 without a valid token', '');
  add('renew', 'request new tokens now, even while a rejected login delays the next attempt', 'Session renewed.\n');
  add('revoke', 'revoke the current tokens; the agent signs in again', 'Tokens revoked. New session:\n');
}

function sessionText(session: SessionReport): string {
  const isSignedIn = session.state === 'valid' || session.usable;
  const rows: string[][] = [
    ['state', isSignedIn ? session.state : `${session.state} (${noTokenState(session.last_error?.code)})`],
  ];
  const time = (name: string, seconds: number | undefined) => {
    if (seconds !== undefined) rows.push([name, durationText(seconds)]);
  };
  if (session.grant) rows.push(['grant', session.grant]);
  if (session.access_token) rows.push(['access token', session.access_token]);
  time('age', session.age_seconds);
  time('expires in', session.expires_in_seconds);
  time('renews in', session.renews_in_seconds);
  time('retries in', session.retry_in_seconds);
  if (session.last_error) {
    const { message, hint } = session.last_error;
    rows.push(['latest error', plain(message)]);
    if (hint) rows.push(['', plain(hint)]);
  }
  return table(rows);
}
