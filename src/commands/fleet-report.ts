import type { Command } from 'commander';
import { bytesText, counted, countText, durationText } from '../base/amounts.ts';
import { codeOf, messageOf, TagferryError, UsageError } from '../base/errors.ts';
import { jsonText, plain } from '../base/foreign-text.ts';
import { readRegularFile } from '../base/regular-file.ts';
import { painter, table } from '../base/table.ts';
import { readGateways } from './fleet-report/gateways.ts';
import { type GatewayLine, lineOf, worstFirst } from './fleet-report/lines.ts';

interface Flags {
  json?: boolean;
  tokenFile?: string;
}

/** Adds `tagferry fleet-report`: many gateways in one table, for whoever has no Prometheus. */
export function define(program: Command): void {
  program
    .command('fleet-report')
    .description('many gateways in one table: what waits, who is behind, whose token fails, versions')
    .argument(
      '<places...>',
      'folders with the output of `status --json` of each gateway (*.json), or addresses of operations',
    )
    .option('--token-file <file>', 'holds the OPS_TOKEN that addresses are asked with')
    .option('--json', 'print the lines as JSON')
    .action(async (places: string[], flags: Flags) => {
      const token = flags.tokenFile === undefined ? undefined : await readToken(flags.tokenFile);
      const lines: GatewayLine[] = [];
      for await (const gateway of readGateways(places, token)) lines.push(lineOf(gateway));
      lines.sort(worstFirst);
      process.stdout.write(`${flags.json ? jsonText({ gateways: lines }) : asTable(lines)}\n`);
      const unread = lines.filter(({ unread: why }) => why !== null).length;
      if (unread > 0) {
        throw new TagferryError(`${unread} of ${lines.length} gateways could not be read`, { code: 'fleet.unread' });
      }
    });
}

async function readToken(file: string): Promise<string> {
  try {
    const token = (await readRegularFile(file)).toString().trim();
    if (/^[\x21-\x7e]+$/.test(token)) return token;
  } catch (error) {
    throw new UsageError(`--token-file ${file} cannot be read (${codeOf(error) ?? messageOf(error)})`);
  }
  throw new UsageError(
    `--token-file ${file} holds no token`,
    'Write the OPS_TOKEN of the gateways into it, and nothing else.',
  );
}

function asTable(lines: readonly GatewayLine[]): string {
  const paint = painter(process.stdout, process.env);
  const head = [
    'gateway',
    'state',
    'version',
    'configuration',
    'waiting',
    'on disk',
    'oldest',
    'last delivered',
    'trouble',
  ];
  const rows = lines.map((line) => {
    if (line.unread !== null) return [line.gateway, 'unread', '', '', '', '', '', '', plain(line.unread)];
    const ago = (seconds: number | null) => (seconds === null ? 'never' : `${durationText(seconds)} ago`);
    return [
      line.gateway,
      line.state,
      line.version,
      plain([line.config_version, line.config_files].filter(Boolean).join(' ')),
      countText(line.waiting),
      bytesText(line.bytes),
      line.waiting === 0 ? '' : durationText(line.oldest_seconds),
      ago(line.last_delivered_seconds_ago),
      line.failures.map(plain).join('; '),
    ];
  });
  const bad = lines.filter(({ unread, failures }) => unread !== null || failures.length > 0).length;
  const versions = new Set(lines.flatMap(({ version }) => (version === '' ? [] : [version])));
  const files = new Set(lines.flatMap(({ config_files: digest }) => (digest === '' ? [] : [digest])));
  const sum = lines.reduce((all, { waiting }) => all + waiting, 0);
  const words = `${countText(lines.length)} gateways, ${bad} with trouble, ${countText(sum)} values wait, ${versions.size === 1 ? 'one version' : `${versions.size} versions`}, ${counted(files.size, 'configuration')}`;
  return `${table([head, ...rows])}\n\n${bad > 0 ? paint(words, 'yellow') : words}`;
}
