import type { Command } from 'commander';
import { type Clock, systemClock } from '../base/clock.ts';
import { PlatformError } from '../base/errors.ts';
import { plain } from '../base/foreign-text.ts';
import { permitableOf } from '../contract/permission-words.ts';
import { Owners } from '../platform/resources/owners.ts';
import { heedDeprecatedForm } from './person/deprecated-form.ts';
import { emailOf, nameOfPermitable, userIdOf } from './person/named-objects.ts';
import { changingVerb, inPersonContext, type PersonContext, type PersonFlags } from './person/person-context.ts';

const OBJECT = 'for example Asset/881';
const WHO = 'e-mail address; with --v1 user/6';
const V1 = 'the deprecated form, users by number; warns with its sunset date';

/** Adds `tagferry owners` (platform 4.2). The API has calls that add and remove an owner, and none that lists or changes one. */
export function define(program: Command, clock: Clock = systemClock): void {
  const owners = program.command('owners').description('owners of an object: grant and take away');

  owners
    .command('ls')
    .alias('list')
    .description('the platform has no call that lists owners: says so')
    .argument('[object]', OBJECT)
    .allowUnknownOption()
    .action(() => {
      throw new PlatformError('the platform has no call that lists owners', {
        code: 'platform.no_such_call',
        hint: '`tagferry permissions ls <object>` lists who has which permission.',
      });
    });

  changingVerb(owners.command('grant').alias('add'))
    .description('make a user an owner')
    .argument('<who>', WHO)
    .argument('<object>', OBJECT)
    .option('--v1', V1)
    .action((who: string, object: string, flags: PersonFlags) =>
      inPersonContext(program, flags, clock, (context) => change(context, 'grant', who, object, flags)),
    );

  changingVerb(owners.command('take').aliases(['remove', 'rm']))
    .description('a user is an owner no more')
    .argument('<who>', WHO)
    .argument('<object>', OBJECT)
    .option('--yes', 'do not ask')
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
  const owners = new Owners(context.writer);
  if (flags.v1) heedDeprecatedForm('owners', `tagferry owners ${action} <e-mail> ${name}`, context.clock);
  const v1 = flags.v1 ? ({ id: userIdOf(who), type: 'User' } as const) : undefined;
  const v2 = flags.v1 ? undefined : ({ email: emailOf(who), type: 'User' } as const);
  if (action === 'take' && !(await context.sure(`Take the ownership of ${name} from ${plain(who)}?`))) return;
  if (v1) await owners[action === 'grant' ? 'addV1' : 'removeV1']({ assignable: v1, permitable });
  else if (v2) await owners[action === 'grant' ? 'add' : 'remove']({ assignable: v2, permitable });
  const sentence = `${plain(who)} is ${action === 'grant' ? 'an owner' : 'no owner any more'} of ${name}.`;
  context.done(sentence, { action, assignable: v1 ?? v2, permitable });
}
