import { type Command, InvalidArgumentError, Option } from 'commander';
import { stringify } from 'yaml';
import { systemClock } from '../base/clock.ts';
import { TagferryError, UsageError } from '../base/errors.ts';
import { readDuration } from '../base/quantity.ts';
import { painter, widthOf } from '../base/table.ts';
import type { ScannedValue, ScanStep } from '../sources/source-kind.ts';
import type { SourceReport } from '../sources/source-report.ts';
import type { TestedReport } from '../sources/source-test.ts';
import { confirm } from './asking.ts';
import { askDaemon, daemonPlace, NoDaemonError, streamFromDaemon } from './control-client.ts';
import { ProgressBar } from './progress-bar.ts';
import { readSourceAddress, type SourceAddress } from './setup/source-address.ts';
import { scannedLines, sourcesTable, testedTable } from './source-words.ts';
import { scanAddress, scanAlone, testAlone } from './sources-alone.ts';
import { type TrustFlags, trustSource } from './sources-trust.ts';

interface Flags {
  json?: boolean;
  wait: number;
}

/** Adds `tagferry sources`: what tags.yaml reads from, how each does, and every value of it read once. */
export function define(program: Command): void {
  const sources = program.command('sources').description('what tags.yaml reads from: how each source does, try it out');
  const config = () => program.opts<{ config?: string }>().config;
  const print = (text: string) => process.stdout.write(`${text}\n`);
  const paint = () => painter(process.stdout, process.env);
  const width = () => (process.stdout.isTTY ? widthOf(process.stdout) : Number.POSITIVE_INFINITY);

  sources
    .command('ls')
    .description("each source's state: connected, last value, errors, polls that were late")
    .option('--json', 'print them as JSON')
    .action(async (flags: Flags) => {
      const { sources: found } = await askDaemon<{ sources: SourceReport[] }>(
        daemonPlace(config(), process.env),
        'sources/ls',
      );
      print(flags.json ? JSON.stringify(found, null, 2) : sourcesTable(found, width(), paint()));
    });

  sources
    .command('test')
    .description('read every configured value once: tag, raw, scaled, time, quality, where it was read')
    .argument('[source...]', 'only these')
    .addOption(waitOption('maximum wait for messages of a broker'))
    .option('--json', 'print them as JSON')
    .addHelpText(
      'after',
      '\nA running agent reads the values over its own connections and stores nothing more. Otherwise this command opens the devices. ' +
        'Exit status 1 if a value could not be read.',
    )
    .action(async (names: string[], flags: Flags) => {
      const values = await test(config(), names, flags.wait);
      print(flags.json ? JSON.stringify(values, null, 2) : testedTable(values, width(), paint()));
      if (values.some(({ problem }) => problem !== null)) process.exitCode = 1;
    });

  sources
    .command('trust')
    .description('the certificate of an OPC UA server: shows it, asks, and keeps it as trusted')
    .argument('<source>', 'of tags.yaml')
    .option('--fingerprint <hex>', 'trust it where it has this SHA-1 or SHA-256, and do not ask')
    .option('--yes', 'do not ask: trust what is shown, unseen')
    .option('--json', 'print what the server shows as JSON')
    .addHelpText(
      'after',
      '\nCompare the fingerprint with what the server shows in its own configuration: over the network anybody can claim to be it.' +
        '\nExit status 1 where it was not trusted.',
    )
    .action(async (name: string, flags: TrustFlags) => {
      if (!(await trustSource(config(), process.env, name, flags))) process.exitCode = 1;
    });

  sources
    .command('scan')
    .description(
      'what a device, a broker or the newest file of a folder offers of what is named, as lines ready for tags.yaml',
    )
    .argument('<source>', 'source of tags.yaml, or an address: tcp://host:502, rtu:/dev/ttyUSB0, mqtt://host')
    .argument(
      '[what...]',
      'Modbus: "holding 0-199", "input 0-49", "coil 0-15"; MQTT: "plant/#"; Sparkplug: edge nodes; OPC UA: a path or node id; everything unless told',
    )
    .addOption(waitOption('time to listen to a broker'))
    .option('--like', 'as blocks under like: what looks alike once, with the tags that have it')
    .option('--yes', 'do not ask')
    .option('--json', 'print what was found as JSON')
    .addHelpText(
      'after',
      '\nModbus: at most ten requests per second, with reading functions, of the named registers only. ' +
        'MQTT: a separate client, which does not affect the session of the agent. Sparkplug: the same, and nodes are asked for ' +
        'their birth certificates (unless rebirth: false). OPC UA: ten requests per second, over the session of the agent. ' +
        'A Modbus device (unit 1) or a broker can be scanned by its address before tags.yaml names it.',
    )
    .action(async (name: string, what: string[], flags: ScanFlags) => {
      const named = `Look at ${what.join(', ')} of ${name}? Even reading can disturb a device, and all of a broker is much.`;
      const question = what.length > 0 ? named : `Look at what ${name} offers?`;
      if (!(await confirm(question, flags.yes))) {
        process.exitCode = 1;
        return;
      }
      const address = addressOf(name);
      const found = address
        ? await scanAddress(address, what, flags.wait)
        : await scan(config(), name, what, flags.wait);
      const lines = scannedLines(address?.name ?? name, found, flags.like === true);
      const head = address ? headOf(address, flags.like === true) : '';
      print(flags.json ? JSON.stringify(found, null, 2) : `${head}${lines}`);
      if (found.length === 0) process.exitCode = 1;
    });
}

/** The source at an address; `undefined` for a name of tags.yaml. */
function addressOf(text: string): SourceAddress | undefined {
  if (!/^(\w+:\/\/|rtu:)/.test(text)) return undefined;
  const address = readSourceAddress(text);
  if ('reason' in address)
    throw new UsageError(address.reason, `${address.instead[0]!.toUpperCase()}${address.instead.slice(1)}.`);
  return address;
}

/** Lines of tags.yaml above the scanned ones, where no source and no tag exist yet. */
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

/** An answer that breaks off is an error, and no end. */
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

/** By whoever has the device. */
async function scan(
  config: string | undefined,
  name: string,
  what: readonly string[],
  waitMs: number,
): Promise<ScannedValue[]> {
  const found: ScannedValue[] = [];
  let bar: ProgressBar | undefined;
  let done = 0;
  const take = (step: ScanStep) => {
    if ('found' in step) return void found.push(step.found);
    bar ??= new ProgressBar(step.total, systemClock);
    done = step.done;
    bar.show(done);
  };
  try {
    const asked = { source: name, what, wait_ms: waitMs };
    const answer = await streamFromDaemon(daemonPlace(config, process.env), 'sources/scan', asked);
    for await (const line of linesOf(answer)) take(stepOf(line));
  } catch (error) {
    if (!(error instanceof NoDaemonError)) throw error;
    for await (const step of scanAlone(config, process.env, name, what, waitMs)) take(step);
  }
  bar?.end(done);
  return found;
}

/** By whoever has the devices: a second process would fight over a serial line, or over the one connection. */
async function test(config: string | undefined, names: readonly string[], waitMs: number): Promise<TestedReport[]> {
  try {
    const asked = { sources: names, wait_ms: waitMs };
    const answer = await askDaemon<{ values: TestedReport[] }>(daemonPlace(config, process.env), 'sources/test', asked);
    return answer.values;
  } catch (error) {
    if (!(error instanceof NoDaemonError)) throw error;
    return await testAlone(config, process.env, names, waitMs, error.hint);
  }
}

function durationMs(text: string): number {
  const reading = readDuration(text);
  if ('value' in reading && reading.value <= 3_600_000) return reading.value;
  throw new InvalidArgumentError('Write for example 10s, an hour at most.');
}
