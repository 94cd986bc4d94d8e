import type { Command } from 'commander';
import { stringify } from 'yaml';
import { UsageError } from '../../base/errors.ts';
import { defaultSeed } from '../sandbox.ts';
import { DEFAULT_URL } from './admin-client.ts';
import { assumptionsText } from './assumptions.ts';
import { addCauseVerb } from './cause-verb.ts';
import { addExamVerb } from './exam-verb.ts';
import { addFaultVerbs } from './fault-verbs.ts';
import type { SandboxFlags } from './flags.ts';
import { credentialsText, runSandbox } from './foreground.ts';
import { addLookVerbs } from './look-verbs.ts';
import { nearestHint } from './named-records.ts';
import { addObjectVerbs } from './object-verbs.ts';
import { addRequestVerbs } from './request-verbs.ts';

/** Adds `tagferry sandbox`. */
export function define(program: Command): void {
  describe(program.command('sandbox'));
}

/** The platform as far as the spec describes it, on this machine, and the verbs that act on a running one. */
export function describe(sandbox: Command): void {
  sandbox
    .description('the platform itself as far as the spec describes it, on this machine')
    // Options of the sandbox stand before a verb, those of the verb after it: both have --json.
    .enablePositionalOptions()
    .allowExcessArguments()
    .option('--listen <host:port>', 'where it listens', '127.0.0.1:8480')
    .option('--admin-port <port>', 'a second address for /sandbox/… that stays when the platform goes offline')
    .option('--identity-port <port>', '{web_url} as an address of its own: its paths answer there alone')
    .option('--now <time>', 'where its clock begins, ISO 8601 (default: now)')
    .option('--cors <origin>', 'origins of web pages that may call, by comma, or *')
    .option('--seed <file>', 'YAML of site, users and credentials (default: a small site)')
    .option('--state <file>', 'keep the state in this file from run to run')
    .option('--speed <n>', 'seconds of the sandbox in one second', '1')
    .option('--values <all|count>', 'keep every value, or only counts', 'all')
    .option('--token-life <seconds>', 'life of an access token (660)')
    .option('--no-rotation', 'a refresh answers with the same refresh token')
    .option('--per-minute <n>', 'requests a minute for a user before 429 (500); 0 is none')
    .option('--drop-invalid', 'values that are not valid vanish behind a 204 instead of a 400')
    .option('--latency <ms>', 'wait before each answer')
    .option('--fail-every <n>', 'each n-th API call is answered --fail-status')
    .option('--fail-status <status>', 'with --fail-every', '503')
    .option('--drop-every <n>', 'each n-th API call is done, but its answer is lost')
    .option('--away <every/for>', 'refuses connections again and again, for example 5m/30s')
    .option('--expire-every <duration>', 'every access and refresh token expires again and again')
    .option('--webhook-ca <file>', 'PEM of an authority that webhook receivers are signed by')
    .option('--strict', 'refuse what clients in the field send and the letter of the spec does not name')
    .option('--assume <name=value>', 'where the spec is silent, see below; may be repeated', collected, [])
    .option('--no-keys', 'no keyboard, also on a terminal')
    .option('--quiet', 'no request log')
    .option('--json', 'the request log as JSON lines')
    .addHelpText('after', () => `\n${EXAMPLES}\n\n${assumptionsText()}\n\n${credentialsText()}`)
    .action((flags: SandboxFlags, command: Command) => {
      const [unknown] = command.args;
      if (unknown === undefined) return runSandbox(flags);
      const verbs = command.commands.map((verb) => verb.name());
      const hint = nearestHint(unknown, verbs, '`tagferry sandbox --help` lists the verbs.');
      throw new UsageError(`sandbox ${unknown} is unknown`, hint);
    });
  addCauseVerb(sandbox);
  addFaultVerbs(sandbox);
  addObjectVerbs(sandbox);
  addLookVerbs(sandbox);
  addRequestVerbs(sandbox);
  addExamVerb(sandbox);
  sandbox
    .command('seed')
    .description('print the default site as YAML: where a seed of your own may begin')
    .addHelpText('after', '\nExample:\n  tagferry sandbox seed > site.yaml && tagferry sandbox --seed site.yaml')
    .action(() => void process.stdout.write(stringify(defaultSeed, { aliasDuplicateObjects: false })));
}

const EXAMPLES = `Without a verb it runs in the foreground; on a terminal single keys make things happen (? shows which).
The verbs act on one that runs, at ${DEFAULT_URL} or where --url says:
  tagferry sandbox --speed 72 --state site.json
  tagferry sandbox cause threshold_reached FT-101 --value 25
  tagferry sandbox fault offline --for 30s
  tagferry sandbox clock advance 11m`;

function collected(text: string, before: string[]): string[] {
  return [...before, text];
}
