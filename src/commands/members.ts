import type { Command } from 'commander';
import { type Clock, systemClock } from '../base/clock.ts';
import { PlatformError, UsageError } from '../base/errors.ts';
import { plain } from '../base/foreign-text.ts';
import { MEMBERSHIP_KINDS, type MembershipKind, membershipPath } from '../contract/membership.ts';
import { Members, type MembershipChange } from '../platform/resources/members.ts';
import { heedDeprecatedForm } from './person/deprecated-form.ts';
import { emailOf, userIdOf } from './person/named-objects.ts';
import { changingVerb, inPersonContext, type PersonContext, type PersonFlags } from './person/person-context.ts';

const LIST = 'tenant-admins/50, tenant-users/50 or userrole-users/60';
const WHO = 'e-mail addresses; with --v1 user/6 and so on';
const V1 = 'the deprecated form, users by number; warns with its sunset date';

const ACTIONS = [
  { name: 'grant', alias: 'add', how: 'add', description: 'add users to a list' },
  { name: 'change', alias: 'replace', how: 'replace', description: 'replace the whole list by these users' },
  { name: 'take', alias: 'remove', how: 'remove', description: 'remove users from a list' },
] as const;

interface MemberList {
  kind: MembershipKind;
  id: number;
  /** As it is written on the command line. */
  name: string;
}

/** Adds `tagferry members` (platform 4.3): admins and users of tenants, users of user roles. The API has no call that lists them. */
export function define(program: Command, clock: Clock = systemClock): void {
  const members = program.command('members').description('admins and users of tenants, users of user roles');

  members
    .command('ls')
    .alias('list')
    .description('the platform has no call that lists members: says so')
    .argument('[list]', LIST)
    .allowUnknownOption()
    .action(() => {
      throw new PlatformError('the platform has no call that lists members', {
        code: 'platform.no_such_call',
        hint: 'Look them up in the identity application; `members change` sets a list to what you name.',
      });
    });

  for (const { name, alias, how, description } of ACTIONS) {
    const command = changingVerb(members.command(name).alias(alias))
      .description(description)
      .argument('<list>', LIST)
      .argument('<who...>', WHO)
      .option('--v1', V1);
    if (how !== 'add') command.option('--yes', 'do not ask');
    command.action((list: string, who: string[], flags: PersonFlags) =>
      inPersonContext(program, flags, clock, (context) => change(context, name, how, listOf(list), who, flags)),
    );
  }
}

async function change(
  context: PersonContext,
  action: string,
  how: MembershipChange,
  list: MemberList,
  who: readonly string[],
  flags: PersonFlags,
): Promise<void> {
  const { kind, id, name } = list;
  if (flags.v1) {
    const area = kind === 'userrole-users' ? 'userroles' : 'tenants';
    heedDeprecatedForm(area, `tagferry members ${action} ${name} <e-mail>...`, context.clock);
  }
  const ids = flags.v1 ? who.map(userIdOf) : [];
  const emails = flags.v1 ? [] : who.map(emailOf);
  const people = plain(who.join(', '));
  const questions = {
    replace: `Replace everybody in ${name} by ${people}?`,
    remove: `Remove ${people} from ${name}?`,
  };
  if (how !== 'add' && !(await context.sure(questions[how]))) return;
  const members = new Members(context.writer);
  if (flags.v1) await members.changeV1(how, kind, id, ids);
  else await members.change(how, kind, id, emails);
  const sentences = {
    add: `${people} added to ${name}.`,
    replace: `${name} is now ${people}.`,
    remove: `${people} removed from ${name}.`,
  };
  const path = membershipPath(flags.v1 ? 1 : 2, kind, id);
  context.done(sentences[how], { action, list: name, path, users: flags.v1 ? ids : emails });
}

/** `tenant-admins/50`, or as the API's path has it: `tenants/50/admins`. */
function listOf(text: string): MemberList {
  const [, holder, middle, member] = /^(tenant|userrole)s?[/:](\d{1,15})[/:](admins|users)$/i.exec(text) ?? [];
  const [, kindName, digits] = /^([a-z-]+)[/:](\d{1,15})$/i.exec(text) ?? [];
  const wanted = (holder === undefined ? (kindName ?? '') : `${holder}-${member}`).toLowerCase();
  const kind = MEMBERSHIP_KINDS.find((one) => one === wanted);
  const id = Number(middle ?? digits);
  if (kind !== undefined) return { kind, id, name: `${kind}/${id}` };
  throw new UsageError(`${JSON.stringify(text)} names no list of members`, `Write ${LIST}.`);
}
