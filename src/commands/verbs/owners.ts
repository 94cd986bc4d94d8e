import type { Command } from 'commander';
import { type Clock, systemClock } from '../../base/clock.ts';
import { plain } from '../../base/foreign-text.ts';
import { permitableOf } from '../../contract/permission-words.ts';
import type { OwnerV1, OwnerV2 } from '../../contract/permissions.ts';
import { changeOwner } from '../../platform/resources/permissions.ts';
import { emailOf, nameOfPermitable, userIdOf } from '../person/named-objects.ts';
import {
  addUnlistable,
  changingVerb,
  inPersonContext,
  type PersonContext,
  type PersonFlags,
  V1,
  warnOfDeprecation,
} from '../person/person-context.ts';

const OBJECT = 'object, for example Asset/881';
const WHO = 'e-mail address; with --v1 user/6';

/** Adds `tagferry owners` (platform 4.2). The API can add and remove owners, but not list them. */
export function define(program: Command, clock: Clock = systemClock): void {
  const owners = program.command('owners').description('add and remove owners of objects');

  addUnlistable(owners, 'owners', '[object]', OBJECT, 'To list permissions, run `tagferry permissions ls <object>`.');

  changingVerb(owners.command('grant').alias('add'))
    .description('add a user as an owner')
    .argument('<who>', WHO)
    .argument('<object>', OBJECT)
    .option('--v1', V1)
    .action((who: string, object: string, flags: PersonFlags) =>
      inPersonContext(program, flags, clock, (context) => change(context, 'grant', who, object, flags)),
    );

  changingVerb(owners.command('take').aliases(['remove', 'rm']))
    .description('remove an owner')
    .argument('<who>', WHO)
    .argument('<object>', OBJECT)
    .option('--yes', 'skip the confirmation')
    .option('--v1', V1)
    .action((who: string, object: string, flags: PersonFlags) =>
      inPersonContext(program, flags, clock, (context) => change(context, 'take', who, object, flags)),
    );
}

async function change(
  context: PersonContext,
  action: 'grant' | 'take',
  who: string,
  object: string,
  flags: PersonFlags,
): Promise<void> {
  const permitable = permitableOf(object);
  const name = nameOfPermitable(permitable);
  if (flags.v1) warnOfDeprecation('owners', `tagferry owners ${action} <e-mail> ${name}`, context.clock);
  const type = 'User' as const;
  const assignable = flags.v1 ? { id: userIdOf(who), type } : { email: emailOf(who), type };
  if (action === 'take' && !(await context.confirm(`Remove ${plain(who)} from the owners of ${name}?`))) return;
  const how = action === 'grant' ? 'add' : 'remove';
  await changeOwner(context.writer, how, { assignable, permitable } as OwnerV1 | OwnerV2);
  const sentence = `${plain(who)} is ${action === 'grant' ? 'an owner' : 'no longer an owner'} of ${name}.`;
  context.done(sentence, { action, assignable, permitable });
}
