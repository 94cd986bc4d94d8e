import type { Entries, KeyName } from './setting-keys.ts';
import type { ValueOf } from './settings/entry.ts';

/** Whether a setting always has a value. Other members may be `undefined`. */
type Always = { required: true } | { filled: true } | { default: string };

/** Settings in the form that the agent uses: one member per key, sizes in bytes, durations in milliseconds. */
export type Settings = {
  -readonly [Key in KeyName as Entries[Key]['member']]:
    | ValueOf<Entries[Key]['form']>
    | (Entries[Key] extends Always ? never : undefined);
};
