import type { Command } from 'commander';
import { UsageError } from '../../base/errors.ts';
import { plain } from '../../base/foreign-text.ts';
import { cut, table } from '../../base/table.ts';
import { permissionTypesOf, permitableOf } from '../../contract/permission-words.ts';
import { PERMISSION_TYPES } from '../../contract/permissions.ts';
import { nounOf } from '../site/records.ts';
import { adminVerb, asAdmin } from './admin-client.ts';
import { type AnyRecord, idOf, kindOf, membersOf, nameOf, recordsOf } from './named-records.ts';

interface OwnerView {
  user: number;
  permitable: { type: string; id: number };
}

/** Adds `ls`, `make`, `destroy`, `grant`, `take`: the site's records and who may see them, without anyone's token. */
export function addObjectVerbs(sandbox: Command): void {
  const ls = adminVerb(sandbox.command('ls').alias('list'))
    .description('the objects of the site: which kinds there are, those of a kind, or one of them')
    .argument('[kind]', 'for example assets; `inheritance` for who inherits permissions from whom')
    .argument('[object]', 'id or name')
    .addHelpText(
      'after',
      '\nExamples:\n  tagferry sandbox ls\n  tagferry sandbox ls assets\n  tagferry sandbox ls asset SN-000881',
    );
  ls.action((kindText: string | undefined, object: string | undefined) =>
    asAdmin(ls, async (client, show) => {
      if (kindText === undefined) {
        const { kinds } = await client.get<{ kinds: { kind: string; count: number }[] }>('objects');
        return show(table([['kind', 'how many'], ...kinds.map(({ kind, count }) => [kind, String(count)])]), kinds);
      }
      if (kindText === 'inheritance') {
        const { rules } = await client.get<{ rules: { from: string; to: string; because: string }[] }>('inheritance');
        const rows = rules.map(({ from, to, because }) => [from, to, because]);
        return show(table([['a permission on', 'holds for', 'that is'], ...rows]), rules);
      }
      if (kindText === 'owners' || kindText === 'owner') {
        const { objects } = await client.get<{ objects: OwnerView[] }>('objects/owners');
        const rows = objects.map(({ user, permitable }) => [String(user), `${permitable.type}/${permitable.id}`]);
        return show(rows.length === 0 ? 'There are no owners.' : table([['user', 'owns'], ...rows]), objects);
      }
      const kind = kindOf(kindText);
      const records = await recordsOf(client, kind);
      if (object === undefined) return show(recordsText(records, kind), records);
      const id = await idOf(client, kind, object);
      const record = records.find((one) => one.id === id);
      if (!record)
        throw new UsageError(`there is none of ${kind} ${id}`, `\`tagferry sandbox ls ${kind}\` shows them.`);
      const members = Object.entries(record).map(([name, value]) => [name, plain(JSON.stringify(value))]);
      show(table(members), record);
    }),
  );

  const make = adminVerb(sandbox.command('make'))
    .description('make an object, or change members of one that is there; tells only what comes in sight by it')
    .argument('<kind>', 'for example asset, or asset/7000 to choose the id')
    .argument('[members...]', 'name=value; lists of ids as 1,2')
    .addHelpText(
      'after',
      '\nExamples:\n  tagferry sandbox make asset serial_number=S-7 parent=910\n  tagferry sandbox make instrumentation/5000 tag=XT-1 assets=[901]\n  tagferry sandbox make purchase_order name=PO-2',
    );
  make.action((where: string, words: string[]) =>
    asAdmin(make, async (client, show) => {
      const [, kindText, id] = /^([^/]+)\/(\d{1,15})$/.exec(where) ?? [undefined, where, undefined];
      const kind = kindOf(kindText!);
      const members = membersOf(words, kind);
      const { objects } = await client.get<{ objects: AnyRecord[] }>(`objects/${kind}`);
      const isThere = objects.some((one) => String(one.id) === id);
      const record =
        id === undefined
          ? await client.send<AnyRecord>('POST', `objects/${kind}`, members)
          : await client.send<AnyRecord>(isThere ? 'PATCH' : 'PUT', `objects/${kind}/${id}`, members);
      show(`${nounOf(kind)} ${record.id} (${nameOf(record)}) is there.`, record);
    }),
  );

  const destroy = adminVerb(sandbox.command('destroy').alias('rm'))
    .description('destroy an object with everything that hangs on it')
    .argument('<kind>', 'for example asset')
    .argument('<object>', 'id or name')
    .addHelpText('after', '\nExample:\n  tagferry sandbox destroy asset 882');
  destroy.action((kindText: string, object: string) =>
    asAdmin(destroy, async (client, show) => {
      const kind = kindOf(kindText);
      const id = await idOf(client, kind, object);
      await client.send('DELETE', `objects/${kind}/${id}`);
      show(`${nounOf(kind)} ${id} is destroyed.`, { kind, id });
    }),
  );

  addPermissionVerb(sandbox, 'grant');
  addPermissionVerb(sandbox, 'take');
}

function addPermissionVerb(sandbox: Command, name: 'grant' | 'take'): void {
  const given = name === 'grant';
  const command = adminVerb(sandbox.command(name))
    .description(
      given
        ? 'give a user permissions on an object, all four unless told'
        : 'take permissions away, inherited ones too, until `grant` gives them again',
    )
    .argument('<object>', 'for example Asset/881')
    .argument('[types...]', `some of ${PERMISSION_TYPES.join(', ')}`)
    .option('--user <who>', 'e-mail address or id (the technical user)');
  if (!given) command.option('--direct', 'only the direct permission: what is inherited stays');
  command.addHelpText('after', `\nExample:\n  tagferry sandbox ${name} Asset/920 can_read --user ben@sandbox.example`);
  command.action((object: string, words: string[], flags: { user?: string; direct?: boolean }) =>
    asAdmin(command, async (client, show) => {
      const on = permitableOf(object);
      const types = words.length === 0 ? undefined : permissionTypesOf(words);
      const user = flags.user !== undefined && /^\d+$/.test(flags.user) ? Number(flags.user) : flags.user;
      const body = {
        on,
        ...(types === undefined ? {} : { types }),
        ...(user === undefined ? {} : { user }),
        ...(flags.direct ? { direct: true } : {}),
      };
      await client.send(given ? 'POST' : 'DELETE', 'permissions', body);
      const who = flags.user ?? 'the technical user';
      const what = (types ?? PERMISSION_TYPES).join(', ');
      show(`${what} on ${on.type} ${on.id}: ${given ? 'given to' : 'taken from'} ${who}.`, { action: name, ...body });
    }),
  );
}

/** Id, name, and the rest on one line. */
function recordsText(records: readonly AnyRecord[], kind: string): string {
  if (records.length === 0) return `There are no ${kind}.`;
  const rows = records.map((record) => {
    const rest = Object.entries(record).filter(
      ([name, value]) => name !== 'id' && value !== nameOf(record) && !isSecret(name),
    );
    const text = rest.map(([name, value]) => `${name}=${typeof value === 'string' ? value : JSON.stringify(value)}`);
    return [String(record.id), nameOf(record), cut(plain(text.join(' ')), 100)];
  });
  return table([['id', 'name', ''], ...rows]);
}

/** The sandbox's secrets protect nothing; still they are not what a list is for. */
function isSecret(member: string): boolean {
  return member === 'password' || member === 'client_secret';
}
