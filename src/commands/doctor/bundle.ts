import { readdirSync, statSync } from 'node:fs';
import { arch, release, totalmem, type } from 'node:os';
import { join, relative } from 'node:path';
import { gzipSync } from 'node:zlib';
import { writeDurably } from '../../base/durable-file.ts';
import { codeOf, TagferryError } from '../../base/errors.ts';
import { REDACTED, Redactor } from '../../base/redactor.ts';
import { readRegularFileSync } from '../../base/regular-file.ts';
import { type TarEntry, writeTar } from '../../base/tar.ts';
import { withDropIns } from '../../config/drop-in-files.ts';
import { maskedEnv, maskedReactions, maskedTags } from '../../config/masked-configuration.ts';
import { Problems } from '../../config/problem.ts';
import { secretsIn } from '../../config/setting-keys.ts';
import { SESSION_FILE } from '../../platform/session/live-tokens.ts';
import { WEBHOOK_FILE } from '../../webhook/registration-file.ts';
import { outputOf } from '../service/service-folder.ts';
import { UNIT } from '../service/service-unit.ts';
import type { CheckLine, DoctorContext } from './context.ts';

const MAX_LOG_LINES = 5_000;
/** Minimum length of masked values that are redacted in other files. Most shorter values are ordinary words. */
const MIN_LENGTH_ELSEWHERE = 8;
/** Unit properties, except those that contain administrator text, such as Environment=. */
const UNIT_PROPERTIES = [
  ...['ActiveState', 'SubState', 'UnitFileState', 'Result', 'NRestarts', 'ExecMainStatus', 'ExecMainCode'],
  ...['ActiveEnterTimestamp', 'InactiveEnterTimestamp', 'FragmentPath', 'DropInPaths', 'NeedDaemonReload'],
  ...['User', 'Group', 'SupplementaryGroups', 'MemoryMax', 'MemoryHigh', 'MemorySwapMax', 'MemoryCurrent', 'TasksMax'],
  ...[
    'DevicePolicy',
    'DeviceAllow',
    'PrivateDevices',
    'ProtectSystem',
    'ProtectHome',
    'ReadWritePaths',
    'WatchdogUSec',
  ],
];

/**
 * Writes an archive for support: doctor results, status, configuration, recent logs, and the names and sizes of the
 * state files. Configuration files are masked. In the other files, the masked values and other known secrets are
 * redacted. The file mode is 0600.
 */
export async function writeBundle(
  file: string,
  context: DoctorContext,
  lines: readonly CheckLine[],
): Promise<{ file: string; entries: string[] }> {
  const { directory, settings, agent, clock, version } = context;
  const configuration = maskedFiles(directory);
  const secrets = configuration.flatMap(({ masked }) => masked).filter(({ length }) => length >= MIN_LENGTH_ELSEWHERE);
  const known = new Redactor();
  known.configure([...secretsIn({ ...settings }), ...tokensIn(settings.stateDir), ...secrets]);
  const entries: TarEntry[] = [];
  const put = (name: string, text: string) => entries.push({ name: `tagferry-doctor/${name}`, text });
  const add = (name: string, text: string) => put(name, withoutCredentials(known.redact(text)));
  add('doctor.json', `${JSON.stringify({ checks: lines }, null, 2)}\n`);
  add('machine.txt', machineText(version, clock.wallMs()));
  if (agent) add('status.json', `${JSON.stringify(agent, null, 2)}\n`);
  for (const { name, text } of configuration) put(`config/${name}`.slice(0, 80), text);
  add('state-folder.txt', listingOf(settings.stateDir));
  const journal = await outputOf('journalctl', [
    ...['-u', UNIT, '--since', '-3d', '-n', String(MAX_LOG_LINES), '-o', 'short-iso', '--no-pager', '-q'],
  ]);
  add('journal.txt', journal ?? 'journalctl is missing or failed\n');
  const properties = UNIT_PROPERTIES.map((name) => `--property=${name}`);
  const unit = await outputOf('systemctl', ['show', UNIT, '--no-pager', ...properties]);
  if (unit !== undefined) add('service.txt', unit);
  await write(file, gzipSync(writeTar(entries, clock.wallMs() / 1000)));
  return { file, entries: entries.map(({ name }) => name) };
}

function maskedFiles(directory: string): { name: string; text: string; masked: string[] }[] {
  const kinds = [
    ['agent.env', 'agent.env.d', maskedEnv],
    ['tags.yaml', 'tags.d', maskedTags],
    ['reactions.yaml', 'reactions.d', maskedReactions],
  ] as const;
  return kinds.flatMap(([main, folder, masked]) =>
    withDropIns(directory, main, folder, new Problems()).map(({ path }) => {
      const name = relative(directory, path);
      try {
        return { name, ...masked(readRegularFileSync(path, MAX_FILE_BYTES).bytes.toString()) };
      } catch (error) {
        return { name, text: `(${codeOf(error)})\n`, masked: [] };
      }
    }),
  );
}

/** Redacts credentials recognized by their format. */
function withoutCredentials(text: string): string {
  return text
    .replaceAll(/\/\/[^/\s"'@]*@/g, `//${REDACTED}@`)
    .replaceAll(/\b(Bearer|Basic)\s+[A-Za-z0-9._~+/=-]{8,}/gi, `$1 ${REDACTED}`);
}

async function write(file: string, bytes: Buffer): Promise<void> {
  try {
    await writeDurably(file, bytes);
  } catch (error) {
    throw new TagferryError(`cannot write the archive ${file} (${codeOf(error)})`, {
      code: 'doctor.bundle',
      hint: 'Specify a file in a folder that this user can write to.',
      cause: error,
    });
  }
}

/** Larger files are omitted. */
const MAX_FILE_BYTES = 64_000_000;
const MAX_TEXT = 1_000_000;

function textOf(path: string): string {
  try {
    return readRegularFileSync(path, MAX_FILE_BYTES).bytes.toString().slice(0, MAX_TEXT);
  } catch (error) {
    return `(${codeOf(error)})\n`;
  }
}

function machineText(version: string, wallMs: number): string {
  const rows = [
    `tagferry ${version}`,
    `node ${process.versions.node}`,
    `${type()} ${release()} ${arch()}`,
    `memory ${Math.round(totalmem() / 1e6)} MB`,
    `time ${new Date(wallMs).toISOString()}`,
    textOf('/etc/os-release').trim(),
  ];
  return `${rows.join('\n')}\n`;
}

/** Returns names, sizes and modes, without contents. */
function listingOf(folder: string): string {
  try {
    const rows = readdirSync(folder).map((name) => {
      const { mode, size, mtime } = statSync(join(folder, name));
      return `${(mode & 0o7777).toString(8).padStart(4, '0')} ${String(size).padStart(12)} ${mtime.toISOString()} ${name}`;
    });
    return `${rows.join('\n')}\n`;
  } catch (error) {
    return `(${codeOf(error)})\n`;
  }
}

/** Returns stored tokens and webhook secrets, to redact them in logs. */
function tokensIn(stateDir: string): string[] {
  const secrets: string[] = [];
  const collect = (value: unknown): void => {
    if (typeof value !== 'object' || value === null) return;
    for (const [key, member] of Object.entries(value)) {
      if (typeof member === 'string' && /token|secret|previous/i.test(key)) secrets.push(member);
      else collect(member);
    }
  };
  for (const name of [SESSION_FILE, WEBHOOK_FILE]) {
    try {
      collect(JSON.parse(readRegularFileSync(join(stateDir, name)).bytes.toString()));
    } catch {
      // The file is missing or not readable by this user.
    }
  }
  return secrets;
}
