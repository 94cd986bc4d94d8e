import type { Command } from 'commander';
import { type Clock, systemClock } from '../../base/clock.ts';
import { inPersonContext, type PersonFlags, personVerb } from '../person/person-context.ts';

const SENTENCES = {
  revoked: 'Signed out. The tokens were revoked and deleted.',
  'ended already': 'The sign-in had already expired. The tokens were deleted.',
  'not signed in': 'Not signed in.',
} as const;

/** Adds `tagferry logout`, which revokes (platform 4.1, bearer form) and deletes a user's tokens. */
export function define(program: Command, clock: Clock = systemClock): void {
  personVerb(program.command('logout'))
    .description('revoke and delete the tokens created by `tagferry login`')
    .option('--forget', 'delete the tokens even if they cannot be revoked')
    .action(async (flags: PersonFlags & { forget?: boolean }) => {
      await inPersonContext(program, { ...flags, json: flags.json ?? false }, clock, async ({ tokens, file, show }) => {
        try {
          const outcome = await tokens.signOut();
          show(SENTENCES[outcome], { signed_in: false, as: flags.as, outcome });
        } catch (error) {
          if (!flags.forget) throw error;
          await file.remove();
          const sentence = 'The tokens were deleted but could not be revoked. They expire within 24 hours.';
          show(sentence, { signed_in: false, as: flags.as, outcome: 'forgotten' });
        }
      });
    });
}
