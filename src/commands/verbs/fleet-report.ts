import type { Command } from 'commander';
import { bytesText, counted, countText, durationText } from '../../base/amounts.ts';
import { codeOf, messageOf, TagferryError, UsageError } from '../../base/errors.ts';
import { jsonText, plain } from '../../base/foreign-text.ts';
import { readRegularFile } from '../../base/regular-file.ts';
import { painter, table } from '../../base/table.ts';
import { readGateways } from '../fleet-report/gateways.ts';
import { type GatewayLine, lineOf, worstFirst } from '../fleet-report/lines.ts';

interface Flags {
  json?: boolean;
  tokenFile?: string;
}

/** Adds `tagferry fleet-report`, for sites without Prometheus. */
export function define(program: Command): void {
  program
    .command('fleet-report')
    .description('show backlog, failures and versions of many gateways in one table')
    .argument(
      '<places...>',
      'folders with the `status --json` output of each gateway (*.json), or operations listener addresses',
    )
    .option('--token-file <file>', 'file with the OPS_TOKEN of the gateways')
    .option('--json', 'print the report as JSON')
    .action(async (places: string[], flags: Flags) => {
      const token = flags.tokenFile === undefined ? undefined : await readToken(flags.tokenFile);
      const lines: GatewayLine[] = [];
      for await (const gateway of readGateways(places, token)) lines.push(lineOf(gateway));
      lines.sort(worstFirst);
      process.stdout.write(`${flags.json ? jsonText({ gateways: lines }) : asTable(lines)}\n`);
      const unread = lines.filter(({ unread: why }) => why !== null).length;
      if (unread > 0) {
        throw new TagferryError(`cannot read ${unread} of ${counted(lines.length, 'gateway')}`, {
          code: 'fleet.unread',
        });
      }
    });
}

async function readToken(file: string): Promise<string> {
  try {
    const token = (await readRegularFile(file)).toString().trim();
    if (/^[\x21-\x7e]+$/.test(token)) return token;
  } catch (error) {
    throw new UsageError(`cannot read --token-file ${file} (${codeOf(error) ?? messageOf(error)})`);
  }
  throw new UsageError(
    `--token-file ${file} does not contain a token`,
    "The file must contain only the gateways' OPS_TOKEN.",
  );
}

function asTable(lines: readonly GatewayLine[]): string {
  const paint = painter(process.stdout, process.env);
  const head = [
    'gateway',
    'state',
    'version',
    'configuration',
    'buffered',
    'on disk',
    'oldest',
    'last delivered',
    'problems',
  ];
  const rows = lines.map((line) => {
    if (line.unread !== null) return [line.gateway, 'unreachable', '', '', '', '', '', '', plain(line.unread)];
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
  const summary = `${counted(lines.length, 'gateway')}, ${bad} with problems, ${counted(sum, 'buffered value')}, ${counted(versions.size, 'version')}, ${counted(files.size, 'configuration')}`;
  return `${table([head, ...rows])}\n\n${bad > 0 ? paint(summary, 'yellow') : summary}`;
}
