import { existsSync } from 'node:fs';
import { hostname } from 'node:os';
import { isAbsolute, relative, resolve } from 'node:path';
import type { Command } from 'commander';
import { bytesText } from '../../base/amounts.ts';
import { systemClock } from '../../base/clock.ts';
import { TagferryError, UsageError } from '../../base/errors.ts';
import { jsonText, plain } from '../../base/foreign-text.ts';
import { version } from '../../base/installation.ts';
import { FORMAT as BUFFER_FORMAT, needsOrigin } from '../../buffer/tables.ts';
import { configurationDirectory } from '../../config/configuration.ts';
import { lockState } from '../../store/state-lock.ts';
import { neverRan } from '../../store/store-client.ts';
import { withSnapshot } from '../../store/store-snapshot.ts';
import { prepareStatements } from '../../webhook/inbox-tables.ts';
import { ArchiveWriter, MANIFEST, type Manifest, manifestOf, stateText } from '../backup/archive.ts';
import {
  type ConfigurationContents,
  configurationContents,
  databaseFiles,
  databasesIn,
  smallFiles,
  UNIT_FOLDER,
} from '../backup/contents.ts';
import { namedElsewhere, unitCredentials } from '../backup/named-elsewhere.ts';
import { decryptCredentials } from '../configuration/credentials.ts';
import { type BufferConnection, openBufferConnection } from '../connection/buffer-connection.ts';
import { agentAddress, configOf } from '../connection/control-client.ts';
import { type Losses, lossesOf } from '../connection/losses.ts';
import { giveToOwner, isServiceFolder } from '../service/service-folder.ts';

interface Flags {
  secrets: boolean;
  overwrite?: boolean;
  json?: boolean;
}

/** Duration of the lease during which the agent does not change its files, and the renewal interval. */
const LEASE_MS = 120_000;
const RENEW_MS = 40_000;

/** Adds `tagferry backup`. */
export function define(program: Command): void {
  program
    .command('backup')
    .description('back up configuration, buffer, inbox, webhook and identity to one file for `tagferry restore`')
    .argument('<file>', 'backup file, or - for standard output')
    .option('--without-secrets', 'omit credentials, keys and the webhook secret')
    .option('--overwrite', 'replace an existing file')
    .option('--json', 'print the contents as JSON')
    .addHelpText(
      'after',
      '\nThe agent can be running: buffer and inbox are copied as of one point in time. The file contains secrets and has mode 0600. It is a ' +
        'tar archive; `tar xf FILE && sha256sum -c SHA256SUMS` verifies it.',
    )
    .action(async (file: string, flags: Flags & { withoutSecrets?: boolean }) => {
      const config = configOf(program);
      await backUp(file, config, { ...flags, secrets: flags.withoutSecrets !== true });
    });
}

async function backUp(file: string, config: string | undefined, flags: Flags): Promise<void> {
  const directory = configurationDirectory(config, process.env);
  const { stateDir } = agentAddress(config, process.env);
  checkUsage(file, directory, stateDir, flags);
  const credentials = flags.secrets ? await decryptCredentials(directory) : new Map<string, Buffer>();
  const contents = configurationContents(directory, flags.secrets);
  contents.leftOut.push(...namedElsewhere(directory));
  if (isServiceFolder(directory)) contents.leftOut.push(...unitCredentials(UNIT_FOLDER, directory));
  const writer = new ArchiveWriter(file === '-' ? undefined : file, systemClock.wallMs() / 1000);
  try {
    const manifest = neverRan(stateDir)
      ? await writeAll(writer, flags, contents, credentials, undefined)
      : await withQuietStore(config, stateDir, (losses) =>
          writeAll(writer, flags, contents, credentials, { stateDir, losses }),
        );
    await writer.end();
    report(manifest, file, writer.bytes, flags);
  } catch (error) {
    await writer.discard();
    throw error;
  }
}

function checkUsage(file: string, directory: string, stateDir: string, { secrets, overwrite }: Flags): void {
  if (file === '-' && process.stdout.isTTY)
    throw new UsageError('cannot write a backup to a terminal', 'Specify a file, or use a pipe.');
  if (file !== '-' && existsSync(file) && !overwrite) {
    throw new TagferryError(`${file} already exists`, {
      code: 'backup.exists',
      hint: 'Specify another file, or use --overwrite.',
    });
  }
  const inside = relative(stateDir, resolve(file));
  if (file !== '-' && !inside.startsWith('..') && !isAbsolute(inside)) {
    throw new UsageError(
      `${file} is in the state folder, which is part of the backup`,
      'Specify a file on another disk.',
    );
  }
  if (!existsSync(directory))
    throw new UsageError(`the folder ${directory} does not exist`, 'Specify the configuration folder with --config.');
  if (isServiceFolder(directory) && process.getuid?.() !== 0) {
    const what = secrets ? 'the secrets and the state folder' : 'the state folder';
    throw new TagferryError(`this user cannot read ${what}`, {
      code: 'backup.forbidden',
      hint: 'Run `sudo tagferry backup`.',
    });
  }
}

/**
 * Prevents changes to the files: by a lease of the running agent, or by locking the folder, so that no agent starts in
 * the meantime.
 */
async function withQuietStore<Result>(
  config: string | undefined,
  stateDir: string,
  work: (losses: Losses) => Promise<Result>,
): Promise<Result> {
  const connection = await openBufferConnection(config, process.env);
  let losses: Losses;
  try {
    losses = await lossesOf(connection);
    if (connection.isAgent) return await withLease(connection, () => work(losses));
  } finally {
    await connection.close();
  }
  const lock = lockState(stateDir, 'verb');
  try {
    return await work(losses);
  } finally {
    lock.release();
    giveToOwner(stateDir);
  }
}

async function withLease<Result>(connection: BufferConnection, work: () => Promise<Result>): Promise<Result> {
  let lease: number | undefined;
  const renew = async () => {
    ({ lease } = await connection.ask<{ lease: number }>('buffer/expect-copy', { lease, for_ms: LEASE_MS }));
  };
  await renew();
  // If the agent exits in the meantime, this process's snapshot remains valid.
  const renewing = setInterval(() => void renew().catch(() => {}), RENEW_MS);
  try {
    return await work();
  } finally {
    clearInterval(renewing);
    await connection.ask('buffer/end-copy', { lease }).catch(() => {});
  }
}

async function writeAll(
  writer: ArchiveWriter,
  { secrets }: Flags,
  { files, leftOut }: ConfigurationContents,
  credentials: ReadonlyMap<string, Buffer>,
  store: { stateDir: string; losses: Losses } | undefined,
): Promise<Manifest> {
  const facts = {
    made_by: version(),
    made_at: new Date(systemClock.wallMs()).toISOString(),
    host: hostname(),
    secrets,
    left_out: leftOut,
  };
  const write = async (state: Manifest['state'], stateFiles: typeof files) => {
    const manifest = manifestOf({ ...facts, state });
    await writer.addText(MANIFEST, `${JSON.stringify(manifest, null, 2)}\n`);
    for (const one of files) await writer.add(one);
    for (const [name, bytes] of credentials) {
      await writer.add({ name: `secrets/${name}`, size: bytes.length, mode: 0o600, read: () => [bytes] });
    }
    for (const one of stateFiles) await writer.add(one);
    return manifest;
  };
  if (!store) return write(null, []);
  const { values, quarantined } = store.losses;
  return withSnapshot(databasesIn(store.stateDir), async (snapshots) => {
    const [buffer, inbox] = snapshots;
    if (buffer?.format === BUFFER_FORMAT && needsOrigin(buffer.database)) throw rebuilding();
    const events = prepareStatements(inbox!.database).countOpen.get() ?? 0;
    const state = { buffer_format: buffer?.format ?? BUFFER_FORMAT, values, quarantined, events };
    return write(state, [...databaseFiles(snapshots), ...(await smallFiles(store.stateDir, secrets))]);
  });
}

/** Values that exist only in the file that was set aside would be missing from the backup. */
function rebuilding(): TagferryError {
  return new TagferryError('the agent is rebuilding the buffer from a corrupt file', {
    code: 'backup.rebuilding',
    hint: 'Run the command again after the event `store.rebuilt`. If tagferry is stopped, start it first.',
  });
}

function report(manifest: Manifest, file: string, bytes: number, flags: Flags): void {
  // Standard output may contain the backup itself.
  const stream = file === '-' ? process.stderr : process.stdout;
  const say = (text: string) => {
    stream.write(`${text}\n`);
  };
  if (flags.json) {
    say(jsonText({ file, bytes, ...manifest }));
    return;
  }
  const { state, left_out: leftOut, secrets } = manifest;
  const contents = state ? stateText(state) : 'configuration only, because no agent has run';
  say(`Wrote ${file === '-' ? 'the backup' : file}: ${bytesText(bytes)}, ${contents}.`);
  for (const { file: name, why } of leftOut) say(`Not included: ${plain(name)} (${plain(why)})`);
  if (secrets) say('The backup contains unencrypted secrets (mode 0600). Store it securely.');
  else say('Secrets are not included. `tagferry setup` prompts for them after `tagferry restore`.');
  say(
    'Switch this gateway off permanently before `tagferry restore` on another one: see /usr/share/doc/tagferry/guide/replace.md.',
  );
}
