import type { Command } from 'commander';
import { type Clock, systemClock } from '../clock.ts';
import { PlatformError } from '../errors.ts';
import { Owners } from '../platform/resources/owners.ts';
import { heedDeprecatedForm } from './person/deprecated-form.ts';
import { emailOf, nameOfPermitable, permitableOf, userIdOf } from './person/named-objects.ts';
import { changingVerb, inPersonRoom, type PersonFlags, type PersonRoom } from './person/person-room.ts';
import { plain } from './table.ts';

const OBJECT = 'for example Asset/881';
const WHO = 'e-mail address; with --v1 user/6';
const V1 = 'the deprecated form, users by number; warns with its sunset date';

/** Adds `tagferry owners` (spec 4.2). The API has calls that add and remove an owner, and none that lists or changes one. */
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
      inPersonRoom(program, flags, clock, (room) => change(room, 'grant', who, object, flags)),
    );

  changingVerb(owners.command('take').aliases(['remove', 'rm']))
    .description('a user is an owner no more')
    .argument('<who>', WHO)
    .argument('<object>', OBJECT)
    .option('--yes', 'do not ask')
    .option('--v1', V1)
    .action((who: string, object: string, flags: PersonFlags) =>
      inPersonRoom(program, flags, clock, (room) => change(room, 'take', who, object, flags)),
    );
}

async function change(
  room: PersonRoom,
  action: 'grant' | 'take',
  who: string,
  object: string,
  flags: PersonFlags,
): Promise<void> {
  const permitable = permitableOf(object);
  const name = nameOfPermitable(permitable);
  const owners = new Owners(room.writer);
  if (flags.v1) heedDeprecatedForm('owners', `tagferry owners ${action} <e-mail> ${name}`, room.clock);
  const v1 = flags.v1 ? ({ id: userIdOf(who), type: 'User' } as const) : undefined;
  const v2 = flags.v1 ? undefined : ({ email: emailOf(who), type: 'User' } as const);
  if (action === 'take' && !(await room.sure(`Take the ownership of ${name} from ${plain(who)}?`))) return;
  if (v1) await owners[action === 'grant' ? 'addV1' : 'removeV1']({ assignable: v1, permitable });
  else if (v2) await owners[action === 'grant' ? 'add' : 'remove']({ assignable: v2, permitable });
  const sentence = `${plain(who)} is ${action === 'grant' ? 'an owner' : 'no owner any more'} of ${name}.`;
  room.done(sentence, { action, assignable: v1 ?? v2, permitable });
}
