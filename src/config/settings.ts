import type { Entries, KeyName } from './setting-keys.ts';
import type { ValueOf } from './settings/entry.ts';

/** Whether there is a value whatever agent.env says; every other member may be `undefined`. */
type Always = { required: true } | { filled: true } | { default: string };

/** agent.env as the agent uses it: one member for each key, sizes in bytes, durations in milliseconds. */
export type Settings = {
  -readonly [Key in KeyName as Entries[Key]['member']]:
    | ValueOf<Entries[Key]['form']>
    | (Entries[Key] extends Always ? never : undefined);
};
