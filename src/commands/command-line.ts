import { Command } from 'commander';
import { endWithReader, reportError } from '../base/command-end.ts';
import { version } from '../base/installation.ts';
import { fitHelp } from './help-text.ts';

interface Verb {
  name: string;
  summary: string;
  /** Loaded only when the verb is asked for: the daemon does not pay for the sandbox, nor `check` for the daemon. */
  load(): Promise<{ define(program: Command): void }>;
}

/** In the order of the help; the manual page is made from them. */
export const VERBS: readonly Verb[] = [
  { name: 'run', summary: 'the daemon, in the foreground: what systemd starts', load: () => import('./run.ts') },
  {
    name: 'sandbox',
    summary: 'the platform itself as far as the spec describes it, on this machine',
    load: () => import('../sandbox/program/verbs.ts'),
  },
  { name: 'demo', summary: 'sandbox, daemon and simulated tags in one terminal', load: () => import('./demo.ts') },
  {
    name: 'check',
    summary: 'read all configuration and print every problem with its line',
    load: () => import('./check.ts'),
  },
  {
    name: 'setup',
    summary: 'ask for what is needed, try the login, write the configuration',
    load: () => import('./setup.ts'),
  },
  {
    name: 'doctor',
    summary: 'check the installation step by step and say what to do about each failure',
    load: () => import('./doctor.ts'),
  },
  {
    name: 'status',
    summary: 'one screen: session, buffer, last post, listener, holds, last events',
    load: () => import('./status.ts'),
  },
  {
    name: 'logs',
    summary: "the service's journal, pretty, followed; by level, event, tag, asset, since",
    load: () => import('./logs.ts'),
  },
  {
    name: 'reload',
    summary: 'read the configuration again, and wait for the verdict',
    load: () => import('./reload.ts'),
  },
  {
    name: 'buffer',
    summary: 'look into the buffer, take values out or put them in, delete, send again',
    load: () => import('./buffer.ts'),
  },
  {
    name: 'sources',
    summary: 'what tags.yaml reads from: how each source does, try it out',
    load: () => import('./sources.ts'),
  },
  {
    name: 'events',
    summary: 'the inbox of webhook events; run reactions again; fetch what was missed',
    load: () => import('./events.ts'),
  },
  {
    name: 'assets',
    summary: 'assets, instrumentations and nodes that this gateway knows; find an id by tag or serial number',
    load: () => import('./assets.ts'),
  },
  { name: 'webhook', summary: "this gateway's webhook on the platform", load: () => import('./webhook.ts') },
  { name: 'session', summary: "the technical user's tokens (never printed whole)", load: () => import('./session.ts') },
  {
    name: 'decommission',
    summary: 'take this gateway out of service: drain, delete its webhook, revoke, mark',
    load: () => import('./decommission.ts'),
  },
  {
    name: 'backup',
    summary: 'this gateway in one file: configuration, buffer, inbox, webhook, identity',
    load: () => import('./backup.ts'),
  },
  {
    name: 'restore',
    summary: 'make this gateway the one that `backup` was made of',
    load: () => import('./restore.ts'),
  },
  {
    name: 'identity',
    summary: 'an identity of its own for a machine that was copied',
    load: () => import('./identity.ts'),
  },
  {
    name: 'fleet-report',
    summary: 'many gateways in one table: what waits, who is behind, whose token fails',
    load: () => import('./fleet-report.ts'),
  },
  { name: 'login', summary: 'sign in as a person, for the four verbs below', load: () => import('./login.ts') },
  { name: 'logout', summary: 'revoke and remove the tokens of `login`', load: () => import('./logout.ts') },
  {
    name: 'permissions',
    summary: 'who may see and do what: list, grant, change, take away',
    load: () => import('./permissions.ts'),
  },
  { name: 'owners', summary: 'owners of an object: grant and take away', load: () => import('./owners.ts') },
  { name: 'members', summary: 'admins and users of tenants, users of user roles', load: () => import('./members.ts') },
  { name: 'labels', summary: 'display labels of value keys: list, set, hide', load: () => import('./labels.ts') },
];

/** The verb that `argv` names, past the options that may stand before it. */
function verbOf(args: readonly string[]): string | undefined {
  for (let i = 0; i < args.length; i++) {
    const word = args[i]!;
    if (word === '--config') i++;
    else if (!word.startsWith('-')) return word === 'help' ? args[i + 1] : word;
  }
  return undefined;
}

/** `--config DIR` may stand before or after the verb: it is taken out and put where commander looks for it. */
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

/** Runs one verb; sets the exit status, never throws. */
export async function runCommandLine(argv: readonly string[]): Promise<void> {
  const args = configFirst(argv.slice(2));
  const program = fitHelp(new Command('tagferry'))
    .description('Carries instrumentation values from the plant to an asset data service, and its events back.')
    .version(version())
    .option('--config <dir>', 'configuration folder (default: $TAGFERRY_CONFIG, /etc/tagferry, ./config)')
    .showHelpAfterError('(tagferry <verb> --help tells more)')
    .showSuggestionAfterError()
    .exitOverride();
  const wanted = verbOf(args);
  if (wanted !== 'run') endWithReader();
  for (const verb of VERBS) {
    if (verb.name === wanted) (await verb.load()).define(program);
    else program.command(verb.name, { hidden: false }).description(verb.summary);
  }
  try {
    if (wanted === undefined && args.length === 0) program.help({ error: true });
    await program.parseAsync(args, { from: 'user' });
  } catch (error) {
    reportError('tagferry', error);
  }
}
