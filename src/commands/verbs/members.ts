import type { Command } from 'commander';
import { type Clock, systemClock } from '../../base/clock.ts';
import { UsageError } from '../../base/errors.ts';
import { plain } from '../../base/foreign-text.ts';
import { MEMBERSHIP_KINDS, type MembershipKind, membershipPath } from '../../contract/membership.ts';
import { changeMembers, type MembershipChange } from '../../platform/resources/permissions.ts';
import { emailOf, userIdOf } from '../person/named-objects.ts';
import {
  addUnlistable,
  changingVerb,
  inPersonContext,
  type PersonContext,
  type PersonFlags,
  V1,
  warnOfDeprecation,
} from '../person/person-context.ts';

const LIST = 'tenant-admins/50, tenant-users/50 or userrole-users/60';
const WHO = 'e-mail addresses; with --v1 user numbers such as user/6';

const ACTIONS = [
  { name: 'grant', alias: 'add', how: 'add', description: 'add users to a list' },
  { name: 'change', alias: 'replace', how: 'replace', description: 'replace all users in a list' },
  { name: 'take', alias: 'remove', how: 'remove', description: 'remove users from a list' },
] as const;

interface MemberList {
  kind: MembershipKind;
  id: number;
  /** Notation on the command line. */
  name: string;
}

/** Adds `tagferry members` (platform 4.3). The API has no call that lists members. */
export function define(program: Command, clock: Clock = systemClock): void {
  const members = program
    .command('members')
    .description('add, replace and remove tenant admins, tenant users and user role members');

  addUnlistable(
    members,
    'members',
    '[list]',
    LIST,
    'Use the identity application. `tagferry members change` replaces a list.',
  );

  for (const { name, alias, how, description } of ACTIONS) {
    const command = changingVerb(members.command(name).alias(alias))
      .description(description)
      .argument('<list>', LIST)
      .argument('<who...>', WHO)
      .option('--v1', V1);
    if (how !== 'add') command.option('--yes', 'skip the confirmation');
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
    warnOfDeprecation(area, `tagferry members ${action} ${name} <e-mail>...`, context.clock);
  }
  const ids = flags.v1 ? who.map(userIdOf) : [];
  const emails = flags.v1 ? [] : who.map(emailOf);
  const people = plain(who.join(', '));
  const questions = {
    replace: `Replace all members of ${name} with ${people}?`,
    remove: `Remove ${people} from ${name}?`,
  };
  if (how !== 'add' && !(await context.confirm(questions[how]))) return;
  if (flags.v1) await changeMembers(context.writer, 1, how, kind, id, ids);
  else await changeMembers(context.writer, 2, how, kind, id, emails);
  const sentences = {
    add: `${people} added to ${name}.`,
    replace: `Members of ${name} are now: ${people}.`,
    remove: `${people} removed from ${name}.`,
  };
  const path = membershipPath(flags.v1 ? 1 : 2, kind, id);
  context.done(sentences[how], { action, list: name, path, users: flags.v1 ? ids : emails });
}

/** Parses `tenant-admins/50` or the API path, `tenants/50/admins`. */
function listOf(text: string): MemberList {
  const [, holder, middle, member] = /^(tenant|userrole)s?[/:](\d{1,15})[/:](admins|users)$/i.exec(text) ?? [];
  const [, kindName, digits] = /^([a-z-]+)[/:](\d{1,15})$/i.exec(text) ?? [];
  const name = (holder === undefined ? (kindName ?? '') : `${holder}-${member}`).toLowerCase();
  const kind = MEMBERSHIP_KINDS.find((one) => one === name);
  const id = Number(middle ?? digits);
  if (kind !== undefined) return { kind, id, name: `${kind}/${id}` };
  throw new UsageError(`${JSON.stringify(text)} is not a list of members`, `Use ${LIST}.`);
}
