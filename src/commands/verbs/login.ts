import type { Command } from 'commander';
import { type Clock, systemClock } from '../../base/clock.ts';
import { UsageError } from '../../base/errors.ts';
import { jsonText } from '../../base/foreign-text.ts';
import { DEFAULT_REDIRECT } from '../person/loopback.ts';
import { clientOf, flowOf, inPersonContext, type PersonFlags, personVerb } from '../person/person-context.ts';
import { signInPerson } from '../person/sign-in.ts';

interface LoginFlags extends PersonFlags {
  redirect: string;
  paste?: boolean;
  browser: boolean;
  webFlow?: boolean;
  pkce?: boolean;
}

/** Adds `tagferry login` with the authorization code flow (platform 5.3, 5.4). */
export function define(program: Command, clock: Clock = systemClock): void {
  personVerb(program.command('login'))
    .description('sign in as a user, for permissions, owners, members and labels')
    .option('--redirect <address>', 'redirect address registered in the connect subscription', DEFAULT_REDIRECT)
    .option('--paste', 'paste the final URL from a browser on another machine, for example over SSH')
    .option('--no-browser', 'print the address without opening a browser')
    .option('--web-flow', 'use CLIENT_SECRET (default if configured)')
    .option('--pkce', 'use PKCE even if a client secret is configured')
    .action(async (flags: LoginFlags) => {
      if (flags.webFlow && flags.pkce) throw new UsageError('--web-flow and --pkce are mutually exclusive');
      await inPersonContext(program, flags, clock, async (context) => {
        const { settings, boundary, tokens } = context;
        const flow = flowOf(settings, flags.webFlow ? 'web' : flags.pkce ? 'pkce' : undefined);
        const received = await signInPerson({
          boundary,
          identityUrl: settings.identityUrl,
          client: clientOf(settings, flow),
          redirect: flags.redirect,
          paste: flags.paste === true,
          browser: flags.browser,
          environment: process.env,
          clock,
          // With --json, standard output contains only data.
          say: (text) => void (flags.json ? process.stderr : process.stdout).write(`${text}\n`),
        });
        await tokens.signIn(received, flow);
        const facts = { signed_in: true, as: flags.as, flow, platform: settings.identityUrl };
        const sentence = `Signed in at ${settings.identityUrl} for at most 24 hours. The tokens are stored in ${context.file.path}. To revoke them, run \`tagferry logout\`.`;
        process.stdout.write(`${flags.json ? jsonText(facts, 0) : sentence}\n`);
      });
    });
}
