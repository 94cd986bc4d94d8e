import type { Command } from 'commander';
import { type Clock, systemClock } from '../base/clock.ts';
import { UsageError } from '../base/errors.ts';
import { jsonText } from '../base/foreign-text.ts';
import { DEFAULT_REDIRECT } from './person/loopback.ts';
import { inPersonContext, type PersonFlags, personVerb } from './person/person-context.ts';
import { clientOf, flowOf } from './person/person-settings.ts';
import { signInPerson } from './person/sign-in.ts';

interface LoginFlags extends PersonFlags {
  redirect: string;
  paste?: boolean;
  browser: boolean;
  webFlow?: boolean;
  pkce?: boolean;
}

/** Adds `tagferry login`: a person signs in by the authorization code flow (platform 5.3, 5.4). */
export function define(program: Command, clock: Clock = systemClock): void {
  personVerb(program.command('login'))
    .description('sign in as a person, for permissions, owners, members and labels')
    .option('--redirect <address>', 'the address registered in the connect subscription', DEFAULT_REDIRECT)
    .option('--paste', 'the browser runs elsewhere (SSH): paste the address that it was sent to')
    .option('--no-browser', 'open no browser, only print the address')
    .option('--web-flow', 'use CLIENT_SECRET: the default where it is configured')
    .option('--pkce', 'use no client secret, even where one is configured')
    .action(async (flags: LoginFlags) => {
      if (flags.webFlow && flags.pkce) throw new UsageError('--web-flow and --pkce exclude each other');
      await inPersonContext(program, flags, clock, async (context) => {
        const { settings, boundary, tokens } = context;
        const flow = flowOf(settings, flags.webFlow ? 'web' : flags.pkce ? 'pkce' : undefined);
        const got = await signInPerson({
          boundary,
          identityUrl: settings.identityUrl,
          client: clientOf(settings, flow),
          redirect: flags.redirect,
          paste: flags.paste === true,
          browser: flags.browser,
          environment: process.env,
          clock,
          // Standard output stays data where it is data.
          tell: (text) => void (flags.json ? process.stderr : process.stdout).write(`${text}\n`),
        });
        await tokens.signIn(got, flow);
        const facts = { signed_in: true, as: flags.as, flow, platform: settings.identityUrl };
        const sentence = `Signed in at ${settings.identityUrl}, for 24 hours at most. The tokens are in ${context.file.path}; \`tagferry logout\` revokes them.`;
        process.stdout.write(`${flags.json ? jsonText(facts, 0) : sentence}\n`);
      });
    });
}
