/**
 * Installs the files from a backup. All state files are copied to a temporary folder first, so that a full disk or a
 * read error leaves the state folder unchanged. Then the state folder is marked, the files are renamed, and the marker
 * is removed. After a crash before the marker is removed, no agent starts until the restore is repeated.
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
  writeFileSync,
} from 'node:fs';
import { dirname, join } from 'node:path';
import { systemClock } from '../../base/clock.ts';
import { syncFolder } from '../../base/durable-file.ts';
import { codeOf, TagferryError } from '../../base/errors.ts';
import { isDiskFull } from '../../buffer/space/reserve.ts';
import { clearDecommissionMark, markRestoring } from '../../store/decommission-mark.ts';
import { storeSecrets } from '../configuration/credentials.ts';
import { readText, setEnvLines, writeWhole } from '../configuration/files.ts';
import { isServiceFolder } from '../service/service-folder.ts';
import { type ArchivedFile, type ArchiveReader, DECOMMISSIONED, STATE_FILES } from './archive.ts';
import { idOf, UNIT_FOLDER } from './contents.ts';

const SERVICE = 'tagferry';

export interface Placing {
  reader: ArchiveReader;
  directory: string;
  stateDir: string;
}

/** Returns a sentence for each file that was not installed. */
export async function place({ reader, directory, stateDir }: Placing): Promise<string[]> {
  const of = (folder: string) => reader.files.filter(({ name }) => name.startsWith(`${folder}/`));
  const beside = join(stateDir, `.restore-${randomUUID()}`);
  try {
    mkdirSync(beside, { recursive: true, mode: 0o700 });
    for (const file of of('state')) copyOut(reader, file, join(beside, inside(file)));
    await markRestoring(stateDir, systemClock.wallMs());
    const notes = await placeConfiguration(reader, directory);
    for (const name of STATE_FILES.filter((one) => one !== DECOMMISSIONED)) {
      rmSync(join(stateDir, name), { force: true });
      rmSync(join(stateDir, `${name}-shm`), { force: true });
    }
    for (const file of of('state'))
      if (inside(file) !== DECOMMISSIONED) renameSync(join(beside, inside(file)), join(stateDir, inside(file)));
    await syncFolder(stateDir);
    changeOwner(stateDir, of('state'));
    // A decommissioned gateway remains decommissioned after a restore.
    if (existsSync(join(beside, DECOMMISSIONED)))
      renameSync(join(beside, DECOMMISSIONED), join(stateDir, DECOMMISSIONED));
    else await clearDecommissionMark(stateDir);
    return notes;
  } catch (error) {
    throw error instanceof TagferryError ? error : unwritable(error);
  } finally {
    rmSync(beside, { recursive: true, force: true });
  }
}

const inside = ({ name }: ArchivedFile) => name.slice(name.indexOf('/') + 1);

async function placeConfiguration(reader: ArchiveReader, directory: string): Promise<string[]> {
  const isService = isServiceFolder(directory);
  const secrets: Record<string, Buffer> = {};
  mkdirSync(directory, { recursive: true });
  for (const file of reader.files) {
    const name = inside(file);
    if (file.name.startsWith('secrets/')) secrets[name] = reader.bytes(file);
    // Re-encrypts the unit's credentials, if possible.
    else if (isService && /^config\/credentials\/(client_secret|technical_password)$/.test(file.name)) {
      secrets[name.slice('credentials/'.length)] = reader.bytes(file);
    } else if (file.name.startsWith('config/')) await placeFile(reader, file, join(directory, name), isService);
  }
  const isAnySecret = Object.keys(secrets).length > 0;
  const storage = isAnySecret ? await storeSecrets(directory, secrets, 'auto') : undefined;
  if (storage && !isService) {
    const path = join(directory, 'agent.env');
    await writeWhole(path, setEnvLines(readText(path) ?? '', storage.env), 0o640);
  }
  return isService ? await placeUnit(reader, storage?.isEncrypted !== false) : [];
}

/** Skips drop-ins that load encrypted credentials if this machine cannot encrypt, because the unit would not start. */
async function placeUnit(reader: ArchiveReader, canEncrypt: boolean): Promise<string[]> {
  const notes: string[] = [];
  for (const file of reader.files.filter(({ name }) => name.startsWith('unit/'))) {
    const path = join(UNIT_FOLDER, inside(file));
    const bytes = reader.bytes(file);
    if (!canEncrypt && bytes.includes('LoadCredentialEncrypted=')) {
      notes.push(
        `${path} not restored: systemd cannot encrypt credentials on this machine, so they are stored as files`,
      );
    } else await writeWhole(path, bytes, 0o644);
  }
  return notes;
}

async function placeFile(reader: ArchiveReader, file: ArchivedFile, path: string, isService: boolean): Promise<void> {
  mkdirSync(dirname(path), { recursive: true });
  await writeWhole(path, reader.bytes(file), 0o600);
  if (process.getuid?.() === 0 && isService) {
    chownSync(path, idOf('user', file.user ?? '') ?? 0, idOf('group', file.group ?? '') ?? 0);
  }
  // Set the mode after chown, which clears mode bits.
  chmodSync(path, file.mode);
}

function copyOut(reader: ArchiveReader, file: ArchivedFile, path: string): void {
  const descriptor = openSync(path, 'wx', 0o600);
  try {
    for (const piece of reader.read(file)) writeFileSync(descriptor, piece);
    fsyncSync(descriptor);
  } finally {
    closeSync(descriptor);
  }
}

/** Changes the owner of state files to the folder owner. */
function changeOwner(stateDir: string, files: readonly ArchivedFile[]): void {
  if (process.getuid?.() !== 0) return;
  const { uid, gid } = statSync(stateDir);
  for (const file of files) {
    const path = join(stateDir, inside(file));
    if (existsSync(path)) chownSync(path, uid, gid);
  }
}

/** Creates the service's state folder with the owner that systemd would set. */
export function makeStateFolder(stateDir: string, isService: boolean): void {
  if (existsSync(stateDir)) return;
  mkdirSync(stateDir, { recursive: true, mode: 0o700 });
  const uid = idOf('user', SERVICE);
  if (isService && process.getuid?.() === 0 && uid !== undefined)
    chownSync(stateDir, uid, idOf('group', SERVICE) ?? uid);
}

function unwritable(cause: unknown): TagferryError {
  const why = isDiskFull(cause) ? ': the disk is full' : ` (${codeOf(cause) ?? 'unknown'})`;
  return new TagferryError(`cannot restore the backup${why}`, {
    code: 'restore.unwritable',
    hint: 'Free up space, or use sudo, then restore again. The service does not start until the restore succeeds.',
    cause,
  });
}
