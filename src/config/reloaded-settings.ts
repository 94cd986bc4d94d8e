import { isDeepStrictEqual } from 'node:util';
import { KEY_NAMES, type KeyName, settingKey } from './setting-keys.ts';
import type { Settings } from './settings.ts';

/** Keys that a running agent follows. All others need a restart: sockets, addresses and files are opened once. */
const FOLLOWED: readonly KeyName[] = [
  'CLIENT_ID',
  'CLIENT_SECRET',
  'TECHNICAL_USERNAME',
  'TECHNICAL_PASSWORD',
  'CLIENT_AUTH',
  'INGEST_TOKEN',
  'INGEST_HOSTS',
  'INGEST_PARTIAL',
  'INGEST_TAG_FROM',
  'OPS_TOKEN',
  'OPS_HOSTS',
  'VALUES_PATH',
  'POST_INTERVAL',
  'POST_MAX_VALUES',
  'POST_MAX_BYTES',
  'POST_SUCCESS',
  'POST_CONCURRENCY',
  'DRAIN_ORDER',
  'BACKFILL_VALUES_PER_SECOND',
  'COMMIT_INTERVAL',
  'COMMIT_VALUES',
  'BUFFER_MAX_BYTES',
  'BUFFER_MAX_AGE',
  'BUFFER_MIN_FREE',
  'BUFFER_FULL',
  'MAX_SERIES',
  'LOG_LEVEL',
];

/** The settings that are in force after a reload, and the changed keys that wait for a restart, in docs/interface.md's order. */
export function reloadedSettings(inForce: Settings, read: Settings): { settings: Settings; needRestart: KeyName[] } {
  const settings: Settings = { ...read };
  const needRestart: KeyName[] = [];
  const listenerChanged = !isDeepStrictEqual(inForce.ingestListen, read.ingestListen);
  for (const key of KEY_NAMES) {
    const { member } = settingKey(key);
    // A token is judged with the address it guards: a listener that stays must not lose its own.
    const follows = FOLLOWED.includes(key) && !(key === 'INGEST_TOKEN' && listenerChanged);
    if (follows || isDeepStrictEqual(inForce[member], read[member])) continue;
    needRestart.push(key);
    Object.assign(settings, { [member]: inForce[member] });
  }
  return { settings, needRestart };
}
