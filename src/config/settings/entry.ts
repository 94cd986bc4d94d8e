import type { ListenAddress } from '../../base/listen.ts';

/** Where at a broker of tags.yaml. */
export interface BrokerTopic {
  broker: string;
  topic: string;
}

/** What a key's text is read as. */
export type Form =
  | { as: 'text'; pattern?: RegExp; what?: string; example?: string }
  /** `base`: paths are put behind it. `bare`: host:port alone is http. */
  | { as: 'address'; schemes: readonly string[]; base?: true; bare?: true }
  /** Of a file: a relative one starts from the folder of the file that names it. */
  | { as: 'path' }
  | { as: 'values-path' }
  /** `meant`: other programs' words for the same. */
  | { as: 'choice'; of: readonly string[]; meant?: Readonly<Record<string, string>> }
  | { as: 'switch' }
  | { as: 'count'; min: number; max: number }
  | { as: 'duration'; minMs: number; maxMs: number }
  | { as: 'size'; min: number; max: number }
  | { as: 'size-or-share' }
  /** Empty is off. */
  | { as: 'listen' }
  | { as: 'event-types' }
  /** Filters of event types: `asset_updated=status,product; event_created=calibration`. */
  | { as: 'event-properties' }
  /** A broker of tags.yaml and a topic there. */
  | { as: 'topic' }
  /** Names of hosts, comma-separated. */
  | { as: 'hosts' }
  | { as: 'success-statuses' };

/**
 * All there is to say about one key of agent.env: `Settings`, what `check` says, `config/agent.env`, docs/settings.md and what a
 * reload does are derived from it.
 */
export interface SettingEntry {
  /** Its name in `Settings`, with the unit it has there. */
  member: string;
  form: Form;
  /** As it would be written in agent.env. */
  default?: string;
  /** In words, where no text could stand for what is taken instead. */
  otherwise?: string;
  /** There is always a value: another rule gives it where the key is not set. */
  filled?: true;
  required?: true;
  /** Its text is never shown. */
  secret?: true;
  example?: string;
  /** What takes a changed text: a reload, or only a restart (sockets, addresses and files are opened once). */
  takenBy: 'reload' | 'restart';
  /** What it is for, in sentences: the comment in agent.env. */
  text: string;
  /** Further sentences for docs/settings.md alone. */
  more?: string;
}

export type SettingEntries = Readonly<Record<string, SettingEntry>>;

/** A value as the agent uses it: sizes in bytes, durations in milliseconds. */
export type ValueOf<F extends Form> = F extends { as: 'choice'; of: readonly (infer Choice)[] }
  ? Choice
  : F extends { as: 'switch' }
    ? boolean
    : F extends { as: 'count' | 'duration' | 'size' }
      ? number
      : F extends { as: 'size-or-share' }
        ? { bytes: number } | { share: number }
        : F extends { as: 'listen' }
          ? ListenAddress | undefined
          : F extends { as: 'topic' }
            ? BrokerTopic
            : F extends { as: 'event-types' | 'hosts' }
              ? readonly string[]
              : F extends { as: 'event-properties' }
                ? Readonly<Record<string, readonly string[]>>
                : F extends { as: 'success-statuses' }
                  ? readonly number[]
                  : string;

export const DAY_MS = 86_400_000;
export const YEAR_MS = 365 * DAY_MS;
export const MAX = Number.MAX_SAFE_INTEGER;
/** Visible ASCII without spaces: what fits a header. */
export const TOKEN = {
  as: 'text',
  pattern: /^[\x21-\x7e]+$/,
  what: 'a bearer token',
  example: 'letters and digits without spaces',
} as const;
