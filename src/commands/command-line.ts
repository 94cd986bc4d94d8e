import { Command, Help } from 'commander';
import { endWithReader, reportError } from '../base/command-end.ts';
import { version } from '../base/installation.ts';
import { fitted, wrapped } from '../base/table.ts';

interface Verb {
  name: string;
  summary: string;
  /** Loads the verb on demand, so that each verb starts fast and loads only its own modules. */
  load(): Promise<{ define(program: Command): void }>;
}

/** Verbs in the order shown in the help. The manual page and the completions are generated from this list. */
export const VERBS: readonly Verb[] = [
  { name: 'run', summary: 'run the agent in the foreground, as systemd does', load: () => import('./verbs/run.ts') },
  {
    name: 'sandbox',
    summary: 'run a local platform for trials and tests',
    load: () => import('../sandbox/program/verbs.ts'),
  },
  {
    name: 'demo',
    summary: 'run sandbox, agent and simulated tags in one terminal',
    load: () => import('./verbs/demo.ts'),
  },
  {
    name: 'check',
    summary: 'check the configuration and report each problem with its line number',
    load: () => import('./verbs/check.ts'),
  },
  {
    name: 'setup',
    summary: 'create the configuration step by step and test the login',
    load: () => import('./verbs/setup.ts'),
  },
  {
    name: 'doctor',
    summary: 'check the installation and recommend a fix for each failure',
    load: () => import('./verbs/doctor.ts'),
  },
  {
    name: 'status',
    summary: 'show the state of the agent on one screen',
    load: () => import('./verbs/status.ts'),
  },
  {
    name: 'logs',
    summary: 'show and follow the log, filtered by level, event, tag, asset or time',
    load: () => import('./verbs/logs.ts'),
  },
  {
    name: 'reload',
    summary: 'reload the configuration and report whether it was accepted',
    load: () => import('./verbs/reload.ts'),
  },
  {
    name: 'buffer',
    summary: 'list, export, import, delete and requeue buffered values',
    load: () => import('./verbs/buffer.ts'),
  },
  {
    name: 'sources',
    summary: 'show, test and scan the sources in tags.yaml',
    load: () => import('./verbs/sources.ts'),
  },
  {
    name: 'events',
    summary: 'list webhook events, replay reactions, fetch missed events',
    load: () => import('./verbs/events.ts'),
  },
  {
    name: 'reactions',
    summary: 'list reactions and test rules on local values',
    load: () => import('./verbs/reactions.ts'),
  },
  {
    name: 'write',
    summary: 'write a value to a device, within the limits in tags.yaml (root only)',
    load: () => import('./verbs/write.ts'),
  },
  {
    name: 'assets',
    summary: 'list known assets, instrumentations and nodes, and find their ids',
    load: () => import('./verbs/assets.ts'),
  },
  {
    name: 'webhook',
    summary: "manage this gateway's webhook on the platform",
    load: () => import('./verbs/webhook.ts'),
  },
  {
    name: 'session',
    summary: "show, renew or revoke the technical user's session",
    load: () => import('./verbs/session.ts'),
  },
  {
    name: 'decommission',
    summary: 'take this gateway out of service',
    load: () => import('./verbs/decommission.ts'),
  },
  {
    name: 'backup',
    summary: 'back up configuration, buffer, inbox, webhook and identity to one file',
    load: () => import('./verbs/backup.ts'),
  },
  {
    name: 'restore',
    summary: 'restore a backup on a replacement gateway',
    load: () => import('./verbs/restore.ts'),
  },
  {
    name: 'identity',
    summary: 'create a new identity for a copied gateway',
    load: () => import('./verbs/identity.ts'),
  },
  {
    name: 'fleet-report',
    summary: 'show the state of many gateways in one table',
    load: () => import('./verbs/fleet-report.ts'),
  },
  { name: 'login', summary: 'sign in as a user, for the commands below', load: () => import('./verbs/login.ts') },
  { name: 'logout', summary: 'revoke and delete the tokens of `login`', load: () => import('./verbs/logout.ts') },
  {
    name: 'permissions',
    summary: 'list, grant, change and revoke permissions',
    load: () => import('./verbs/permissions.ts'),
  },
  { name: 'owners', summary: 'add and remove owners of objects', load: () => import('./verbs/owners.ts') },
  {
    name: 'members',
    summary: 'add, replace and remove members of tenants and user roles',
    load: () => import('./verbs/members.ts'),
  },
  { name: 'labels', summary: 'set and hide display labels of value keys', load: () => import('./verbs/labels.ts') },
];

/** Returns the verb, which may be preceded by options. */
function verbOf(args: readonly string[]): string | undefined {
  for (let i = 0; i < args.length; i++) {
    const word = args[i]!;
    if (word === '--config') i++;
    else if (!word.startsWith('-')) return word === 'help' ? args[i + 1] : word;
  }
  return undefined;
}

/** Moves `--config DIR` in front of the verb, where commander expects it. */
function configFirst(args: readonly string[]): string[] {
  const end = args.indexOf('--');
  const before = end < 0 ? [...args] : args.slice(0, end);
  const found: string[] = [];
  for (let i = 0; i < before.length; ) {
    const width = before[i] === '--config' ? 2 : before[i]!.startsWith('--config=') ? 1 : 0;
    if (width === 0) i++;
    else found.push(...before.splice(i, width));
  }
  return [...found, ...before, ...(end < 0 ? [] : args.slice(end))];
}

/** Runs one verb and sets the exit status. Never throws. */
export async function runCommandLine(argv: readonly string[]): Promise<void> {
  const args = configFirst(argv.slice(2));
  const program = fitHelp(new Command('tagferry'))
    .description(
      'Posts instrumentation values from the plant to an asset data service and runs reactions to its events.',
    )
    .version(version())
    .option('--config <dir>', 'configuration folder (default: $TAGFERRY_CONFIG, /etc/tagferry, ./config)')
    .showHelpAfterError('(see tagferry <verb> --help)')
    .showSuggestionAfterError()
    .exitOverride();
  const chosen = verbOf(args);
  if (chosen !== 'run') endWithReader();
  for (const verb of VERBS) {
    if (verb.name === chosen) (await verb.load()).define(program);
    else program.command(verb.name, { hidden: false }).description(verb.summary);
  }
  try {
    if (chosen === undefined && args.length === 0) program.help({ error: true });
    await program.parseAsync(args, { from: 'user' });
  } catch (error) {
    reportError('tagferry', error);
  }
}

/**
 * Minimum width of a description printed next to its term, in columns. A narrower description is printed below the
 * term.
 */
const MIN_ROOM = 30;
const INDENT = '      ';

/** Fits the help to the terminal width, but not below 40 columns. Commands added later inherit the setting. */
export function fitHelp(program: Command): Command {
  const width = (stream: NodeJS.WriteStream) => (stream.isTTY ? stream.columns : undefined) as number;
  return program
    .configureHelp({
      minWidthToWrap: 20,
      formatItem(term, termWidth, description, helper) {
        const columns = helper.helpWidth ?? 80;
        if (columns - termWidth - 4 >= MIN_ROOM || description === '')
          return Help.prototype.formatItem.call(this, term, termWidth, description, helper);
        const below = wrapped(description, columns - INDENT.length).map((line) => `${INDENT}${line}`);
        return [`  ${term}`, ...below].join('\n');
      },
    })
    .configureOutput({
      getOutHelpWidth: () => width(process.stdout),
      getErrHelpWidth: () => width(process.stderr),
      writeOut: (text) => process.stdout.write(fittedHelp(text, process.stdout)),
      writeErr: (text) => process.stderr.write(fittedHelp(text, process.stderr)),
    });
}

/** Wraps the help at the terminal width. In a pipe, only paragraphs below the options are wrapped, at 80 columns. */
function fittedHelp(text: string, stream: NodeJS.WriteStream): string {
  if (stream.isTTY) return fitted(text, stream);
  return text.replaceAll(/^\S.*$/gm, (line) => wrapped(line, 80).join('\n'));
}
