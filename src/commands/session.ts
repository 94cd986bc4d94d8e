import type { Command } from 'commander';
import { durationText } from '../base/amounts.ts';
import { jsonText, plain } from '../base/foreign-text.ts';
import { table } from '../base/table.ts';
import type { sessionReport } from '../platform/session/session-report.ts';
import { askDaemon, daemonPlace } from './control-client.ts';

type SessionReport = ReturnType<typeof sessionReport>;

/** Adds `tagferry session`: the technical user's tokens, which are never printed whole. */
export function define(program: Command): void {
  const session = program.command('session').description("the technical user's tokens (never printed whole)");
  const add = (name: string, description: string, done: string) =>
    session
      .command(name)
      .description(description)
      .option('--json', 'print the session as JSON')
      .action(async (flags: { json?: boolean }) => {
        const place = daemonPlace(program.opts<{ config?: string }>().config, process.env);
        const now = await askDaemon<SessionReport>(place, `session/${name}`);
        process.stdout.write(`${flags.json ? jsonText(now) : `${done}${sessionText(now)}`}\n`);
        if (!now.usable) process.exitCode = 1;
      });
  add('show', 'state, grant, age, time to renewal; exit status 1 while signed out', '');
  add('renew', 'get new tokens now; after a refused login this tries at once', 'The session has new tokens.\n');
  add(
    'revoke',
    'end the tokens of now; the daemon logs in anew',
    'The tokens were revoked; this is the new session.\n',
  );
}

function sessionText(session: SessionReport): string {
  const rows: string[][] = [
    ['state', session.state === 'valid' || session.usable ? session.state : `${session.state} (signed out)`],
  ];
  const time = (name: string, seconds: number | undefined) => {
    if (seconds !== undefined) rows.push([name, durationText(seconds)]);
  };
  if (session.grant) rows.push(['grant', session.grant]);
  if (session.access_token) rows.push(['access token', session.access_token]);
  time('age', session.age_seconds);
  time('expires in', session.expires_in_seconds);
  time('renews in', session.renews_in_seconds);
  time('tries again in', session.retry_in_seconds);
  if (session.last_error) {
    const { message, hint } = session.last_error;
    rows.push(['last error', plain(message)]);
    if (hint) rows.push(['', plain(hint)]);
  }
  return table(rows);
}
