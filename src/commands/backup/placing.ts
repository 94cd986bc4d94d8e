/**
 * Puts what a backup holds in place. Everything is written beside its place first, so that a full disk or a broken medium changes nothing;
 * then the state folder is marked, the files change places, and the mark goes. A crash in between leaves a folder with which no daemon
 * starts before the restore is done again.
 */
import { randomUUID } from 'node:crypto';
import {
  chmodSync,
  chownSync,
  closeSync,
  existsSync,
  fsyncSync,
  mkdirSync,
  openSync,
  renameSync,
  rmSync,
  statSync,
  writeSync,
} from 'node:fs';
import { dirname, join } from 'node:path';
import { systemClock } from '../../base/clock.ts';
import { codeOf, TagferryError } from '../../base/errors.ts';
import { clearDecommissionMark, markRestoring } from '../../store/decommission-mark.ts';
import { isServiceFolder } from '../service-folder.ts';
import { readText, syncFolder, writeWhole } from '../setup/configuration-files.ts';
import { setEnvLines } from '../setup/env-lines.ts';
import { keepSecrets } from '../setup/secret-keeping.ts';
import type { ArchivedFile, ArchiveReader } from './archive-reader.ts';
import { UNIT_FOLDER } from './configuration-files.ts';
import { idOf } from './machine-names.ts';
import { STATE_FILES } from './state-files.ts';

const SERVICE = 'tagferry';

export interface Placing {
  reader: ArchiveReader;
  directory: string;
  stateDir: string;
}

/** Gives what was not put in place, and why. */
export async function place({ reader, directory, stateDir }: Placing): Promise<string[]> {
  const of = (folder: string) => reader.files.filter(({ name }) => name.startsWith(`${folder}/`));
  const beside = join(stateDir, `.restore-${randomUUID()}`);
  try {
    mkdirSync(beside, { recursive: true, mode: 0o700 });
    for (const file of of('state')) copyOut(reader, file, join(beside, inside(file)));
    await markRestoring(stateDir, systemClock.wallMs());
    const said = await placeConfiguration(reader, directory);
    for (const name of STATE_FILES.filter((one) => one !== MARK)) {
      rmSync(join(stateDir, name), { force: true });
      rmSync(join(stateDir, `${name}-shm`), { force: true });
    }
    for (const file of of('state'))
      if (inside(file) !== MARK) renameSync(join(beside, inside(file)), join(stateDir, inside(file)));
    syncFolder(stateDir);
    giveTo(stateDir, of('state'));
    // A gateway that was out of service stays it.
    if (existsSync(join(beside, MARK))) renameSync(join(beside, MARK), join(stateDir, MARK));
    else await clearDecommissionMark(stateDir);
    return said;
  } catch (error) {
    throw error instanceof TagferryError ? error : unwritable(error);
  } finally {
    rmSync(beside, { recursive: true, force: true });
  }
}

const MARK = 'decommissioned.json';
const inside = ({ name }: ArchivedFile) => name.slice(name.indexOf('/') + 1);

async function placeConfiguration(reader: ArchiveReader, directory: string): Promise<string[]> {
  const isService = isServiceFolder(directory);
  const secrets: Record<string, Buffer> = {};
  mkdirSync(directory, { recursive: true });
  for (const file of reader.files) {
    const name = inside(file);
    if (file.name.startsWith('secrets/')) secrets[name] = reader.bytes(file);
    // What the unit loads is kept as this machine can keep it.
    else if (isService && /^config\/credentials\/(client_secret|technical_password)$/.test(file.name)) {
      secrets[name.slice('credentials/'.length)] = reader.bytes(file);
    } else if (file.name.startsWith('config/')) placeFile(reader, file, join(directory, name), isService);
  }
  const isAnySecret = Object.keys(secrets).length > 0;
  const kept = isAnySecret ? await keepSecrets(directory, secrets, 'auto') : undefined;
  if (kept && !isService) {
    const path = join(directory, 'agent.env');
    writeWhole(path, setEnvLines(readText(path) ?? '', kept.env), 0o640);
  }
  return isService ? placeUnit(reader, kept?.isEncrypted !== false) : [];
}

/** A drop-in that has the unit decrypt what could not be encrypted here would keep it from starting. */
function placeUnit(reader: ArchiveReader, canEncrypt: boolean): string[] {
  const said: string[] = [];
  for (const file of reader.files.filter(({ name }) => name.startsWith('unit/'))) {
    const path = join(UNIT_FOLDER, inside(file));
    const bytes = reader.bytes(file);
    if (!canEncrypt && bytes.includes('LoadCredentialEncrypted=')) {
      said.push(`${path}: systemd cannot encrypt credentials here, and keeps them as files instead`);
    } else writeWhole(path, bytes, 0o644);
  }
  return said;
}

function placeFile(reader: ArchiveReader, file: ArchivedFile, path: string, isService: boolean): void {
  mkdirSync(dirname(path), { recursive: true });
  writeWhole(path, reader.bytes(file), 0o600);
  if (process.getuid?.() === 0 && isService) {
    chownSync(path, idOf('user', file.user ?? '') ?? 0, idOf('group', file.group ?? '') ?? 0);
  }
  // After the owner: changing that takes bits away.
  chmodSync(path, file.mode);
}

function copyOut(reader: ArchiveReader, file: ArchivedFile, path: string): void {
  const descriptor = openSync(path, 'wx', 0o600);
  try {
    for (const piece of reader.read(file)) {
      for (let at = 0; at < piece.length; ) at += writeSync(descriptor, piece, at);
    }
    fsyncSync(descriptor);
  } finally {
    closeSync(descriptor);
  }
}

/** To whom the folder belongs. */
function giveTo(stateDir: string, files: readonly ArchivedFile[]): void {
  if (process.getuid?.() !== 0) return;
  const { uid, gid } = statSync(stateDir);
  for (const file of files) {
    const path = join(stateDir, inside(file));
    if (existsSync(path)) chownSync(path, uid, gid);
  }
}

/** Makes the service's state folder, which systemd makes with the first start, as systemd would. */
export function makeStateFolder(stateDir: string, isService: boolean): void {
  if (existsSync(stateDir)) return;
  mkdirSync(stateDir, { recursive: true, mode: 0o700 });
  const uid = idOf('user', SERVICE);
  if (isService && process.getuid?.() === 0 && uid !== undefined)
    chownSync(stateDir, uid, idOf('group', SERVICE) ?? uid);
}

function unwritable(cause: unknown): TagferryError {
  return new TagferryError(`the backup cannot be put in place (${codeOf(cause) ?? 'unknown'})`, {
    code: 'restore.unwritable',
    hint: 'Free space, or use sudo; then restore again: until that is done the service does not start.',
    cause,
  });
}
