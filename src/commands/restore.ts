import { existsSync } from 'node:fs';
import { resolve } from 'node:path';
import type { Command } from 'commander';
import { counted } from '../base/amounts.ts';
import { TagferryError } from '../base/errors.ts';
import { jsonText, plain } from '../base/foreign-text.ts';
import { configurationDirectory, readSettingsLeniently } from '../config/configuration.ts';
import { lockState } from '../store/state-lock.ts';
import { neverRan } from '../store/store-client.ts';
import { confirm } from './asking.ts';
import { ArchiveReader } from './backup/archive-reader.ts';
import type { Manifest } from './backup/manifest.ts';
import { makeStateFolder, place } from './backup/placing.ts';
import { openBufferConnection } from './buffer-connection.ts';
import { askDaemon, daemonPlace, NoDaemonError } from './control-client.ts';
import { lossesOf, openEvents } from './decommission/outcome.ts';
import { isServiceFolder } from './service-folder.ts';
import { tellNextSteps } from './setup/next-steps.ts';
import { giveToOwner } from './state-owner.ts';

interface Flags {
  loseValues?: boolean;
  look?: boolean;
  yes?: boolean;
  json?: boolean;
}

/** Adds `tagferry restore`: another gateway goes on as the one that `backup` was made of. */
export function define(program: Command): void {
  program
    .command('restore')
    .description('make this gateway the one that `tagferry backup` was made of')
    .argument('<file>', 'that `tagferry backup` wrote')
    .option('--look', 'check the file and say what is in it; nothing is changed')
    .option('--lose-values', 'though values wait in the buffer that is here: they are lost')
    .option('--yes', 'do not ask')
    .option('--json', 'print the outcome as JSON')
    .addHelpText(
      'after',
      '\nStop the service first. The gateway of the backup must be off for good: two gateways with one identity disturb each other ' +
        '(/usr/share/doc/tagferry/replace.md). Exit status 1 if the file is damaged, has another format, or values would be lost; ' +
        '78 if the restored configuration has errors.',
    )
    .action(async (file: string, flags: Flags) => {
      const { config } = program.opts<{ config?: string }>();
      const reader = new ArchiveReader(file);
      try {
        await restore(reader, config, flags);
      } finally {
        reader.close();
      }
    });
}

async function restore(reader: ArchiveReader, config: string | undefined, flags: Flags): Promise<void> {
  const say = (text: string) => void (flags.json || process.stdout.write(`${text}\n`));
  const { manifest } = reader;
  for (const line of contentLines(manifest)) say(line);
  if (flags.look) {
    if (flags.json) process.stdout.write(`${jsonText(manifest)}\n`);
    return;
  }
  const directory = configurationDirectory(config, process.env);
  const isService = isServiceFolder(directory);
  if (isService && process.getuid?.() !== 0) {
    throw new TagferryError('the configuration and the state folder are not for this user', {
      code: 'restore.forbidden',
      hint: 'Run `sudo tagferry restore`.',
    });
  }
  const stateDir = stateFolderOf(reader, directory, isService);
  await demandStopped(config);
  await demandEmpty(config, stateDir, flags.loseValues === true);
  const question = `Put it in place in ${resolve(directory)} and ${stateDir}? The gateway "${plain(manifest.host)}" has to be off for good.`;
  if (!(await confirm(question, flags.yes))) {
    process.stdout.write('Nothing was changed.\n');
    process.exitCode = 1;
    return;
  }
  makeStateFolder(stateDir, isService);
  const lock = lockState(stateDir, 'verb');
  let notes: string[];
  try {
    notes = await place({ reader, directory, stateDir });
  } finally {
    lock.release();
    giveToOwner(stateDir);
  }
  for (const note of notes) say(note);
  say(`Restored from ${manifest.made_at} of "${plain(manifest.host)}".`);
  const isSound = await tellNextSteps(directory, { say, show: (command) => say(`  ${command}`) });
  if (flags.json) process.stdout.write(`${jsonText({ restored: true, ok: isSound, notes, ...manifest })}\n`);
}

function contentLines({ host, made_at: at, made_by: by, state, secrets, left_out: leftOut }: Manifest): string[] {
  const held = state
    ? `${counted(state.values, 'value')}, ${counted(state.quarantined, 'value')} in quarantine, ${counted(state.events, 'event')} without its reaction`
    : 'configuration alone';
  return [
    `A backup of "${plain(host)}" from ${plain(at)}, by tagferry ${plain(by)}: ${held}.`,
    ...(secrets ? [] : ['Secrets are not in it: `tagferry setup` asks for them afterwards.']),
    ...leftOut.map(({ file, why }) => `Not in it: ${plain(file)} (${plain(why)})`),
  ];
}

/** The state folder of the agent with the configuration that is then in place, in the environment of the service. */
function stateFolderOf(reader: ArchiveReader, directory: string, isService: boolean): string {
  const files = reader.files.filter(({ name }) => /^config\/agent\.env(\.d\/[^/]+\.env)?$/.test(name));
  const coming = new Map(files.map((file) => [file.name.slice('config/'.length), reader.text(file)]));
  const environment = isService ? { STATE_DIRECTORY: '/var/lib/tagferry', ...process.env } : process.env;
  const { settings, problems, isBroken } = readSettingsLeniently({ directory, environment, coming });
  if (!isBroken('STATE_DIR')) return settings.stateDir;
  const problem = problems.find(({ reason }) => reason.startsWith('STATE_DIR'));
  throw new TagferryError(`the state folder of the backup is unknown here: ${problem?.reason ?? 'STATE_DIR'}`, {
    code: 'restore.state_folder',
    hint: 'Set STATE_DIR in the environment of this command, and of the service.',
  });
}

async function demandStopped(config: string | undefined): Promise<void> {
  try {
    await askDaemon(daemonPlace(config, process.env), 'session/show');
  } catch (error) {
    if (error instanceof NoDaemonError) return;
    throw error;
  }
  throw new TagferryError('the service runs: what it holds would be written over', {
    code: 'restore.running',
    hint: 'Stop it first: sudo systemctl stop tagferry',
  });
}

async function demandEmpty(config: string | undefined, stateDir: string, loseValues: boolean): Promise<void> {
  if (loseValues || !existsSync(stateDir) || neverRan(stateDir)) return;
  const connection = await openBufferConnection(config, { ...process.env, STATE_DIR: stateDir });
  try {
    const { values, quarantined } = await lossesOf(connection);
    const events = await openEvents(stateDir);
    if (values + quarantined + events === 0) return;
    const left = [
      ...(values + quarantined > 0 ? [counted(values + quarantined, 'value')] : []),
      ...(events > 0 ? [counted(events, 'event')] : []),
    ];
    throw new TagferryError(`${left.join(' and ')} of this gateway's own wait in ${stateDir}: they would be lost`, {
      code: 'restore.values',
      hint: 'Start the service until they are delivered, save them with `tagferry buffer export`, or give them up with --lose-values.',
    });
  } finally {
    await connection.close();
  }
}
