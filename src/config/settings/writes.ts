import type { SettingEntries } from './entry.ts';

export const WRITES = {
  WRITES: {
    member: 'writes',
    form: { as: 'switch' },
    default: 'off',
    onlyInFile: true,
    appliedBy: 'reload',
    text: 'Allow `write` actions and `tagferry write` to write values that are marked as writable in tags.yaml: on or off. Accepted only in agent.env, not from the environment, a file or a credential.',
  },
} as const satisfies SettingEntries;
