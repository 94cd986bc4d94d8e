import { existsSync } from 'node:fs';
import { hostname } from 'node:os';
import { isAbsolute, relative, resolve } from 'node:path';
import type { Command } from 'commander';
import { bytesText, counted } from '../base/amounts.ts';
import { systemClock } from '../base/clock.ts';
import { TagferryError, UsageError } from '../base/errors.ts';
import { jsonText, plain } from '../base/foreign-text.ts';
import { version } from '../base/installation.ts';
import { FORMAT as BUFFER_FORMAT, needsOrigin } from '../buffer/tables.ts';
import { configurationDirectory } from '../config/configuration.ts';
import { lockState } from '../store/state-lock.ts';
import { neverRan } from '../store/store-client.ts';
import { withSnapshot } from '../store/store-snapshot.ts';
import { prepareStatements } from '../webhook/inbox-tables.ts';
import { ArchiveWriter } from './backup/archive-writer.ts';
import { type ConfigurationContents, configurationContents, UNIT_FOLDER } from './backup/configuration-files.ts';
import { decryptCredentials } from './backup/encrypted-credentials.ts';
import { MANIFEST, type Manifest, manifestOf } from './backup/manifest.ts';
import { namedElsewhere } from './backup/named-elsewhere.ts';
import { databaseFiles, databasesIn, smallFiles } from './backup/state-files.ts';
import { unitCredentials } from './backup/unit-credentials.ts';
import { type BufferConnection, openBufferConnection } from './buffer-connection.ts';
import { daemonPlace } from './control-client.ts';
import { type Losses, lossesOf } from './decommission/outcome.ts';
import { isServiceFolder } from './service-folder.ts';
import { giveToOwner } from './state-owner.ts';

interface Flags {
  secrets: boolean;
  overwrite?: boolean;
  json?: boolean;
}

/** The daemon is told so long at a time that its files are being read, and again before that is over. */
const LEASE_MS = 120_000;
const RENEW_MS = 40_000;

/** Adds `tagferry backup`: this gateway in one file. */
export function define(program: Command): void {
  program
    .command('backup')
    .description(
      'this gateway in one file, for `tagferry restore` on another: configuration, buffer, inbox, webhook, identity',
    )
    .argument('<file>', 'to write; - for standard output')
    .option('--without-secrets', 'without credentials, keys and the secret of the webhook')
    .option('--overwrite', 'replace the file where it is there')
    .option('--json', 'print what is in it as JSON')
    .addHelpText(
      'after',
      '\nThe daemon may run: buffer and inbox are taken as they stand at one instant. The file is 0600, for it holds secrets.\n' +
        'It is an ordinary tar; `tar xf FILE && sha256sum -c SHA256SUMS` checks it.',
    )
    .action(async (file: string, flags: Flags & { withoutSecrets?: boolean }) => {
      const { config } = program.opts<{ config?: string }>();
      await backUp(file, config, { ...flags, secrets: flags.withoutSecrets !== true });
    });
}

async function backUp(file: string, config: string | undefined, flags: Flags): Promise<void> {
  const directory = configurationDirectory(config, process.env);
  const { stateDir } = daemonPlace(config, process.env);
  demandUse(file, directory, stateDir, flags);
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
    tell(manifest, file, writer.bytes, flags);
  } catch (error) {
    await writer.giveUp();
    throw error;
  }
}

function demandUse(file: string, directory: string, stateDir: string, { secrets, overwrite }: Flags): void {
  if (file === '-' && process.stdout.isTTY)
    throw new UsageError('a backup is not for a terminal', 'Name a file, or a pipe.');
  if (file !== '-' && existsSync(file) && !overwrite) {
    throw new TagferryError(`${file} is there already`, {
      code: 'backup.exists',
      hint: 'Name another file, or replace it with --overwrite.',
    });
  }
  const inside = relative(stateDir, resolve(file));
  if (file !== '-' && !inside.startsWith('..') && !isAbsolute(inside)) {
    throw new UsageError(`${file} lies in the state folder, which it is to hold`, 'Name a file on another disk.');
  }
  if (!existsSync(directory)) throw new UsageError(`there is no folder ${directory}`, 'Name it with --config.');
  if (isServiceFolder(directory) && process.getuid?.() !== 0) {
    const what = secrets ? 'the secrets and the state folder are' : 'the state folder is';
    throw new TagferryError(`${what} not for this user`, {
      code: 'backup.forbidden',
      hint: 'Run `sudo tagferry backup`.',
    });
  }
}

/** A daemon is told that its files are read; without one the folder is held, so that none starts in the middle. */
async function withQuietStore<Result>(
  config: string | undefined,
  stateDir: string,
  work: (losses: Losses) => Promise<Result>,
): Promise<Result> {
  const connection = await openBufferConnection(config, process.env);
  let losses: Losses;
  try {
    losses = await lossesOf(connection);
    if (connection.isDaemon) return await besideDaemon(connection, () => work(losses));
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

async function besideDaemon<Result>(connection: BufferConnection, work: () => Promise<Result>): Promise<Result> {
  let lease: number | undefined;
  const renew = async () => {
    ({ lease } = await connection.ask<{ lease: number }>('buffer/expect-copy', { lease, for_ms: LEASE_MS }));
  };
  await renew();
  // If the agent ends meanwhile, its files stay, and the snapshot of this process stays valid.
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

/** Values that stand in a file that was set aside alone would not be in it. */
function rebuilding(): TagferryError {
  return new TagferryError('the buffer is being rebuilt from a file that was set aside', {
    code: 'backup.rebuilding',
    hint: 'Try again once the log says `store.rebuilt`; where tagferry is stopped, start it for that.',
  });
}

function tell(manifest: Manifest, file: string, bytes: number, flags: Flags): void {
  // Standard output is the backup itself there.
  const stream = file === '-' ? process.stderr : process.stdout;
  const say = (text: string) => {
    stream.write(`${text}\n`);
  };
  if (flags.json) {
    say(jsonText({ file, bytes, ...manifest }));
    return;
  }
  const { state, left_out: leftOut, secrets } = manifest;
  const held = state
    ? `${counted(state.values, 'value')}, ${counted(state.quarantined, 'value')} in quarantine, ${counted(state.events, 'event')} without its reaction`
    : 'configuration alone: no agent ran here yet';
  say(`${file === '-' ? 'Written' : file}: ${bytesText(bytes)}, ${held}.`);
  for (const { file: name, why } of leftOut) say(`Not in it: ${plain(name)} (${plain(why)})`);
  if (secrets) say('It holds secrets as they are (0600): keep it as you keep them.');
  else say('Secrets are not in it: `tagferry setup` asks for them after `tagferry restore`.');
  say(
    'Before `tagferry restore` on another gateway, this one has to be off for good: see /usr/share/doc/tagferry/replace.md.',
  );
}
