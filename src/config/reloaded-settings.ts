import { isDeepStrictEqual } from 'node:util';
import { KEY_NAMES, type KeyName, settingKey } from './setting-keys.ts';
import type { Settings } from './settings.ts';

/** Returns the settings in use after a reload and the changed keys that require a restart, in the order of agent.env. */
export function reloadedSettings(inForce: Settings, read: Settings): { settings: Settings; needRestart: KeyName[] } {
  const settings: Settings = { ...read };
  const needRestart: KeyName[] = [];
  const listenerChanged = !isDeepStrictEqual(inForce.ingestListen, read.ingestListen);
  for (const key of KEY_NAMES) {
    const { member, appliedBy } = settingKey(key);
    // Token and address are validated together. A listener that keeps its address must keep its token.
    const follows = appliedBy === 'reload' && !(key === 'INGEST_TOKEN' && listenerChanged);
    if (follows || isDeepStrictEqual(inForce[member], read[member])) continue;
    needRestart.push(key);
    Object.assign(settings, { [member]: inForce[member] });
  }
  return { settings, needRestart };
}
