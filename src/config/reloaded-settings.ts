import { isDeepStrictEqual } from 'node:util';
import { KEY_NAMES, type KeyName, settingKey } from './setting-keys.ts';
import type { Settings } from './settings.ts';

/** The settings that are in force after a reload, and the changed keys that wait for a restart, in agent.env's order. */
export function reloadedSettings(inForce: Settings, read: Settings): { settings: Settings; needRestart: KeyName[] } {
  const settings: Settings = { ...read };
  const needRestart: KeyName[] = [];
  const listenerChanged = !isDeepStrictEqual(inForce.ingestListen, read.ingestListen);
  for (const key of KEY_NAMES) {
    const { member, takenBy } = settingKey(key);
    // A token is judged with the address it guards: a listener that stays must not lose its own.
    const follows = takenBy === 'reload' && !(key === 'INGEST_TOKEN' && listenerChanged);
    if (follows || isDeepStrictEqual(inForce[member], read[member])) continue;
    needRestart.push(key);
    Object.assign(settings, { [member]: inForce[member] });
  }
  return { settings, needRestart };
}
