import type { Command } from 'commander';
import { type Clock, systemClock } from '../base/clock.ts';
import { inPersonContext, type PersonFlags, personVerb } from './person/person-context.ts';

const SENTENCES = {
  revoked: 'Signed out: the tokens are revoked and removed.',
  'ended already': 'The sign-in had ended already; the tokens are removed.',
  'not signed in': 'Nobody was signed in.',
} as const;

/** Adds `tagferry logout`: revokes a person's tokens (platform 4.1, bearer form) and removes them. */
export function define(program: Command, clock: Clock = systemClock): void {
  personVerb(program.command('logout'))
    .description('revoke and remove the tokens of `tagferry login`')
    .option('--forget', 'remove the tokens here even where the platform cannot be asked to revoke them')
    .action(async (flags: PersonFlags & { forget?: boolean }) => {
      await inPersonContext(program, { ...flags, json: flags.json ?? false }, clock, async ({ tokens, file, show }) => {
        try {
          const outcome = await tokens.signOut();
          show(SENTENCES[outcome], { signed_in: false, as: flags.as, outcome });
        } catch (error) {
          if (!flags.forget) throw error;
          await file.remove();
          const sentence =
            'The tokens are removed here; they could not be revoked and end by themselves within 24 hours.';
          show(sentence, { signed_in: false, as: flags.as, outcome: 'forgotten' });
        }
      });
    });
}
