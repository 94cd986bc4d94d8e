import { readSettingsLeniently } from '../../config/configuration.ts';
import { KEY_NAMES, settingKey } from '../../config/setting-keys.ts';
import { decryptCredentials } from '../backup/encrypted-credentials.ts';
import { serviceEnvironment } from '../service-folder.ts';

/**
 * Secrets that the folder has already, wherever it keeps them, by their keys in lower case: they are kept unless others are given. What
 * this user cannot read, what only another machine can decrypt, and what stands in the environment of this shell is not among them.
 */
export async function storedSecrets(directory: string): Promise<Map<string, string>> {
  const { settings } = readSettingsLeniently({ directory, environment: serviceEnvironment(directory, {}) });
  const found = new Map<string, string>();
  for (const key of KEY_NAMES.filter((name) => settingKey(name).secret)) {
    const value = settings[settingKey(key).member];
    if (typeof value === 'string' && value !== '') found.set(key.toLowerCase(), value);
  }
  const encrypted = await decryptCredentials(directory).catch(() => new Map<string, Buffer>());
  for (const [name, bytes] of encrypted) found.set(name, bytes.toString('utf8').replace(/\r?\n$/, ''));
  return found;
}
