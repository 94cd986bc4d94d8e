import { existsSync } from 'node:fs';
import { resolve } from 'node:path';
import type { Command } from 'commander';
import { counted } from '../../base/amounts.ts';
import { TagferryError } from '../../base/errors.ts';
import { jsonText, plain } from '../../base/foreign-text.ts';
import { configurationDirectory, readSettingsLeniently } from '../../config/configuration.ts';
import { lockState } from '../../store/state-lock.ts';
import { neverRan } from '../../store/store-client.ts';
import { ArchiveReader, type Manifest, stateText } from '../backup/archive.ts';
import { makeStateFolder, place } from '../backup/placing.ts';
import { openBufferConnection } from '../connection/buffer-connection.ts';
import { agentAddress, askAgent, configOf, NoAgentError } from '../connection/control-client.ts';
import { lossesOf, openEvents } from '../connection/losses.ts';
import { giveToOwner, isServiceFolder } from '../service/service-folder.ts';
import { showNextSteps } from '../setup/next-steps.ts';
import { confirmChange } from '../terminal/input.ts';

interface Flags {
  loseValues?: boolean;
  look?: boolean;
  yes?: boolean;
  json?: boolean;
}

/** Adds `tagferry restore`. */
export function define(program: Command): void {
  program
    .command('restore')
    .description('restore a backup on a replacement gateway')
    .argument('<file>', 'backup file created by `tagferry backup`')
    .option('--look', 'verify the file and show its contents without changing anything')
    .option('--lose-values', 'discard values still buffered on this gateway')
    .option('--yes', 'skip the confirmation')
    .option('--json', 'print the result as JSON')
    .addHelpText(
      'after',
      '\nStop the service first. The original gateway must be switched off permanently, because two gateways with one identity conflict ' +
        '(/usr/share/doc/tagferry/guide/replace.md). Exit status 1 if the file is damaged or has an unknown format, or if values would be ' +
        'lost; 78 if the restored configuration has errors.',
    )
    .action(async (file: string, flags: Flags) => {
      const config = configOf(program);
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
    throw new TagferryError('this user cannot write to the configuration and state folders', {
      code: 'restore.forbidden',
      hint: 'Run `sudo tagferry restore`.',
    });
  }
  const stateDir = stateFolderOf(reader, directory, isService);
  await requireStopped(config);
  await requireEmpty(config, stateDir, flags.loseValues === true);
  const question = `Restore to ${resolve(directory)} and ${stateDir}? The gateway "${plain(manifest.host)}" must be switched off permanently.`;
  if (!(await confirmChange(question, flags.yes))) return;
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
  say(`Restored the backup of "${plain(manifest.host)}" from ${manifest.made_at}.`);
  const isSound = await showNextSteps(directory, { say, show: (command) => say(`  ${command}`) });
  if (flags.json) process.stdout.write(`${jsonText({ restored: true, ok: isSound, notes, ...manifest })}\n`);
}

function contentLines({ host, made_at: at, made_by: by, state, secrets, left_out: leftOut }: Manifest): string[] {
  const contents = state ? stateText(state) : 'configuration only';
  return [
    `Backup of "${plain(host)}" from ${plain(at)}, created by tagferry ${plain(by)}: ${contents}.`,
    ...(secrets ? [] : ['Secrets are not included. `tagferry setup` prompts for them afterwards.']),
    ...leftOut.map(({ file, why }) => `Not included: ${plain(file)} (${plain(why)})`),
  ];
}

/** Returns the restored configuration's state folder, resolved with the service's environment. */
function stateFolderOf(reader: ArchiveReader, directory: string, isService: boolean): string {
  const files = reader.files.filter(({ name }) => /^config\/agent\.env(\.d\/[^/]+\.env)?$/.test(name));
  const coming = new Map(files.map((file) => [file.name.slice('config/'.length), reader.text(file)]));
  const environment = isService ? { STATE_DIRECTORY: '/var/lib/tagferry', ...process.env } : process.env;
  const { settings, problems, isBroken } = readSettingsLeniently({ directory, environment, coming });
  if (!isBroken('STATE_DIR')) return settings.stateDir;
  const problem = problems.find(({ reason }) => reason.startsWith('STATE_DIR'));
  throw new TagferryError(`the backup's state folder is unknown: ${problem?.reason ?? 'STATE_DIR'}`, {
    code: 'restore.state_folder',
    hint: 'Set STATE_DIR in the environment of this command and of the service.',
  });
}

async function requireStopped(config: string | undefined): Promise<void> {
  try {
    await askAgent(agentAddress(config, process.env), 'session/show');
  } catch (error) {
    if (error instanceof NoAgentError) return;
    throw error;
  }
  throw new TagferryError('the agent is running, and restoring would overwrite its data', {
    code: 'restore.running',
    hint: 'Run `sudo systemctl stop tagferry` first.',
  });
}

async function requireEmpty(config: string | undefined, stateDir: string, loseValues: boolean): Promise<void> {
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
    throw new TagferryError(`${left.join(' and ')} of this gateway in ${stateDir} would be lost`, {
      code: 'restore.values',
      hint: 'Run the service until they are delivered, save them with `tagferry buffer export`, or discard them with --lose-values.',
    });
  } finally {
    await connection.close();
  }
}
