import { type Command, InvalidArgumentError, Option } from 'commander';
import { stringify } from 'yaml';
import { systemClock } from '../../base/clock.ts';
import { TagferryError, UsageError } from '../../base/errors.ts';
import { plain } from '../../base/foreign-text.ts';
import { readDuration } from '../../base/quantity.ts';
import { painter, widthOf } from '../../base/table.ts';
import type { ProposedMember, ScannedValue, ScanStep } from '../../sources/source-kind.ts';
import type { TestedReport } from '../../sources/source-test.ts';
import type { SourceReport } from '../../sources/status.ts';
import { agentAddress, askAgent, NoAgentError, streamFromAgent } from '../connection/control-client.ts';
import { type TrustFlags, trustSource } from '../sources/certificate-trust.ts';
import { readSourceAddress, type SourceAddress, scanAddress, scanAlone, testAlone } from '../sources/direct-access.ts';
import { proposedLine, scannedLines, sourcesTable, testedTable } from '../sources/report-text.ts';
import { confirm } from '../terminal/input.ts';
import { ProgressBar } from '../terminal/output.ts';

interface Flags {
  json?: boolean;
  wait: number;
}

/** Adds `tagferry sources`. */
export function define(program: Command): void {
  const sources = program.command('sources').description('show, test and scan the sources in tags.yaml');
  const config = () => program.opts<{ config?: string }>().config;
  const print = (text: string) => process.stdout.write(`${text}\n`);
  const paint = () => painter(process.stdout, process.env);
  const width = () => (process.stdout.isTTY ? widthOf(process.stdout) : Number.POSITIVE_INFINITY);

  sources
    .command('ls')
    .description('list sources with their state, last value, errors and late polls')
    .option('--json', 'print the sources as JSON')
    .action(async (flags: Flags) => {
      const { sources: found } = await askAgent<{ sources: SourceReport[] }>(
        agentAddress(config(), process.env),
        'sources/ls',
      );
      print(flags.json ? JSON.stringify(found, null, 2) : sourcesTable(found, width(), paint()));
    });

  sources
    .command('test')
    .description('read every configured value once and show its raw and scaled value, time and quality')
    .argument('[source...]', 'sources to test (default: all)')
    .addOption(waitOption('maximum time to wait for broker messages'))
    .option('--json', 'print the values as JSON')
    .addHelpText(
      'after',
      '\nOpens each source a second time, in the running agent or, if no agent is running, in this process. Stores, ' +
        'acknowledges and moves nothing. `exec` sources require a running agent. Exit status 1 if a value cannot be read.',
    )
    .action(async (names: string[], flags: Flags) => {
      const values = await test(config(), names, flags.wait);
      print(flags.json ? JSON.stringify(values, null, 2) : testedTable(values, width(), paint()));
      if (values.some(({ problem }) => problem !== null)) process.exitCode = 1;
    });

  sources
    .command('trust')
    .description('show the certificate of an OPC UA server and trust it after confirmation')
    .argument('<source>', 'source in tags.yaml')
    .option('--fingerprint <hex>', 'SHA-1 or SHA-256 fingerprint to trust without confirmation')
    .option('--yes', 'trust any certificate without confirmation')
    .option('--json', 'print the certificate as JSON')
    .addHelpText(
      'after',
      "\nCompare the fingerprint with the one in the server's configuration: any host on the network can impersonate the server. " +
        'Exit status 1 if the certificate was not trusted.',
    )
    .action(async (name: string, flags: TrustFlags) => {
      if (!(await trustSource(config(), process.env, name, flags))) process.exitCode = 1;
    });

  sources
    .command('scan')
    .description('list the values of an OPC UA server, a broker or the newest file in a folder, as lines for tags.yaml')
    .argument('<source>', 'source in tags.yaml, or the address of a broker: mqtt://host')
    .argument('[what...]', 'MQTT: "plant/#"; Sparkplug: edge nodes; OPC UA: a path or node ID (default: everything)')
    .addOption(waitOption('time to listen to a broker'))
    .option('--like', 'print values that repeat for several tags as templates (`like`)')
    .option('--yes', 'skip the confirmation')
    .option('--json', 'print the values as JSON')
    .addHelpText(
      'after',
      "\nMQTT: uses a separate client, which does not affect the agent's session. Sparkplug: like MQTT, and requests birth " +
        'certificates from nodes (unless rebirth: false). OPC UA: a separate session, at most ten requests per second. ' +
        'A broker can be scanned by its address before it is added to tags.yaml.',
    )
    .action(async (name: string, what: string[], flags: ScanFlags) => {
      const address = addressOf(name);
      const target = what.length > 0 ? `${what.join(', ')} of ${name}` : name;
      const question = `Scan ${target}? A broker or server can have many values.`;
      // A scan changes nothing, so a script does not have to confirm it.
      if (process.stdin.isTTY && !(await confirm(question, flags.yes))) {
        process.exitCode = 1;
        return;
      }
      const { found, members, comments } = address
        ? { found: await scanAddress(address, what, flags.wait), members: {}, comments: [] }
        : await scan(config(), name, what, flags.wait);
      const lines = scannedLines(address?.name ?? name, found, flags.like === true);
      const head = address ? headOf(address, flags.like === true) : proposedLine(name, members);
      const notes = comments.map((comment) => `# ${plain(comment)}\n`).join('');
      print(flags.json ? JSON.stringify(found, null, 2) : `${head}${notes}${lines}`);
      if (found.length === 0) process.exitCode = 1;
    });
}

/** Returns the source at an address; `undefined` for a source name in tags.yaml. */
function addressOf(text: string): SourceAddress | undefined {
  if (!/^(\w+:\/\/|rtu:)/.test(text)) return undefined;
  const address = readSourceAddress(text);
  if ('reason' in address)
    throw new UsageError(address.reason, `${address.instead[0]!.toUpperCase()}${address.instead.slice(1)}.`);
  if (address.kind === 'modbus') throw new UsageError('sources of the kind modbus cannot be scanned');
  return address;
}

/** Returns the lines of tags.yaml that must precede the scanned ones if the source and the tag do not exist yet. */
function headOf({ name, members }: SourceAddress, isLike: boolean): string {
  const tag = 'tags:\n  FT-101:\n    asset: # asset number on the platform\n';
  return `${stringify({ sources: { [name]: members } })}${isLike ? '' : tag}`;
}

function waitOption(description: string): Option {
  return new Option('--wait <duration>', description).argParser(durationMs).default(10_000, '10s');
}

interface ScanFlags extends Flags {
  like?: boolean;
  yes?: boolean;
}

/** Throws if the response is incomplete. */
async function* linesOf(answer: AsyncIterable<Buffer>): AsyncGenerator<string> {
  let rest = '';
  for await (const chunk of answer) {
    const lines = (rest + chunk.toString('utf8')).split('\n');
    rest = lines.pop()!;
    yield* lines;
  }
}

function stepOf(line: string): ScanStep {
  const step = JSON.parse(line) as ScanStep | { failed: string; hint?: string };
  if (!('failed' in step)) return step;
  throw new TagferryError(step.failed, { code: 'source.scan', ...(step.hint ? { hint: step.hint } : {}) });
}

interface Scanned {
  found: ScannedValue[];
  /** Members that the source requires. */
  members: Readonly<Record<string, ProposedMember>>;
  comments: string[];
}

/** Scans through the running agent, if any, because a device may accept only one connection. */
async function scan(
  config: string | undefined,
  name: string,
  what: readonly string[],
  waitMs: number,
): Promise<Scanned> {
  const found: ScannedValue[] = [];
  let members: Scanned['members'] = {};
  const comments: string[] = [];
  let bar: ProgressBar | undefined;
  let done = 0;
  const add = (step: ScanStep) => {
    if ('found' in step) return void found.push(step.found);
    if ('comment' in step) return void comments.push(step.comment);
    if ('source' in step) {
      members = step.source;
      return;
    }
    bar ??= new ProgressBar(step.total, systemClock);
    done = step.done;
    bar.show(done);
  };
  try {
    const asked = { source: name, what, wait_ms: waitMs };
    const answer = await streamFromAgent(agentAddress(config, process.env), 'sources/scan', asked);
    for await (const line of linesOf(answer)) add(stepOf(line));
  } catch (error) {
    if (!(error instanceof NoAgentError)) throw error;
    for await (const step of scanAlone(config, process.env, name, what, waitMs)) add(step);
  }
  bar?.end(done);
  return { found, members, comments };
}

/**
 * Tests through the running agent, if any, because a second process would compete for a serial line or a single
 * connection.
 */
async function test(config: string | undefined, names: readonly string[], waitMs: number): Promise<TestedReport[]> {
  try {
    const asked = { sources: names, wait_ms: waitMs };
    const answer = await askAgent<{ values: TestedReport[] }>(agentAddress(config, process.env), 'sources/test', asked);
    return answer.values;
  } catch (error) {
    if (!(error instanceof NoAgentError)) throw error;
    return await testAlone(config, process.env, names, waitMs, error.hint);
  }
}

function durationMs(text: string): number {
  const reading = readDuration(text);
  if ('value' in reading && reading.value <= 3_600_000) return reading.value;
  throw new InvalidArgumentError('Use a duration of at most one hour, for example 10s.');
}
