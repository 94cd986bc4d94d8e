/**
 * The state folder in a backup: buffer and inbox as they stand at one instant, and the small files beside them. Tokens are not among
 * them: the gateway that comes signs in by itself, and what it revoked of another would be that one's session.
 */
import { readFileSync } from 'node:fs';
import { basename, join } from 'node:path';
import { codeOf } from '../../base/errors.ts';
import { gatewayIdentity, IDENTITY_FILE } from '../../store/gateway-identity.ts';
import { bufferPath } from '../../store/store-messages.ts';
import type { DatabaseSnapshot } from '../../store/store-snapshot.ts';
import { WEBHOOK_FILE } from '../../webhook/registration-file.ts';
import type { ArchiveFile } from './archive-writer.ts';

const DATABASES = ['buffer.db', 'inbox.db'] as const;
/** A copy of the configuration as it is, in backups with secrets only; may be missing. */
const LAST_GOOD = 'last-good.json';
/** May be missing. */
const DECOMMISSIONED = 'decommissioned.json';

/** All that a restore puts into a state folder. */
export const STATE_FILES: readonly string[] = [
  ...DATABASES.flatMap((name) => [name, `${name}-wal`]),
  WEBHOOK_FILE,
  IDENTITY_FILE,
  LAST_GOOD,
  DECOMMISSIONED,
];

export const databasesIn = (stateDir: string) => [bufferPath(stateDir), join(stateDir, 'inbox.db')];

export function databaseFiles(snapshots: readonly DatabaseSnapshot[]): ArchiveFile[] {
  return snapshots.flatMap(({ path, files }) =>
    files.map(({ ending, bytes, read }) => ({
      name: `state/${basename(path)}${ending}`,
      size: bytes,
      mode: 0o600,
      read,
    })),
  );
}

export async function smallFiles(stateDir: string, withSecrets: boolean): Promise<ArchiveFile[]> {
  const texts: [name: string, text: string | undefined][] = [
    [WEBHOOK_FILE, await webhookText(stateDir, withSecrets)],
    [IDENTITY_FILE, `${JSON.stringify(gatewayIdentity(stateDir))}\n`],
    [LAST_GOOD, withSecrets ? textOf(join(stateDir, LAST_GOOD)) : undefined],
    [DECOMMISSIONED, textOf(join(stateDir, DECOMMISSIONED))],
  ];
  return texts.flatMap(([name, text]) => {
    if (text === undefined) return [];
    const bytes = Buffer.from(text);
    return [{ name: `state/${name}`, size: bytes.length, mode: 0o600, read: () => [bytes] }];
  });
}

/** Without its secret the start asks the platform for another: nothing is registered twice. */
async function webhookText(stateDir: string, withSecrets: boolean): Promise<string | undefined> {
  const path = join(stateDir, WEBHOOK_FILE);
  if (withSecrets) return textOf(path);
  const text = textOf(path);
  if (text === undefined) return undefined;
  const { secret: _, previous: __, previousUntilMs: ___, ...rest } = JSON.parse(text) as Record<string, unknown>;
  return `${JSON.stringify(rest)}\n`;
}

function textOf(path: string): string | undefined {
  try {
    return readFileSync(path, 'utf8');
  } catch (error) {
    if (codeOf(error) === 'ENOENT') return undefined;
    throw error;
  }
}
