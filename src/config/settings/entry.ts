import type { ListenAddress } from '../../base/listen.ts';

/** Topic and its broker in tags.yaml. */
export interface BrokerTopic {
  broker: string;
  topic: string;
}

/** Format of a key's text. */
export type Form =
  | { as: 'text'; pattern?: RegExp; what?: string; example?: string }
  /** `base`: paths are appended. `bare`: an address without a scheme (host:port) is an http address. */
  | { as: 'address'; schemes: readonly string[]; base?: true; bare?: true }
  /** Path of a file; a relative path is resolved against the folder of the file that contains the key. */
  | { as: 'path' }
  | { as: 'values-path' }
  /** `meant`: names that other programs use for a choice. */
  | { as: 'choice'; of: readonly string[]; meant?: Readonly<Record<string, string>> }
  | { as: 'switch' }
  | { as: 'count'; min: number; max: number }
  | { as: 'duration'; minMs: number; maxMs: number }
  | { as: 'size'; min: number; max: number }
  | { as: 'size-or-share' }
  /** ISO 8601 date or time in UTC. */
  | { as: 'time'; minMs: number; maxMs: number }
  /** Listen address; an empty string disables the listener. */
  | { as: 'listen' }
  | { as: 'event-types' }
  /** Filters of event types: `asset_updated=status,product; event_created=calibration`. */
  | { as: 'event-properties' }
  /** Broker in tags.yaml, and topic. */
  | { as: 'topic' }
  /** Host names, comma-separated. */
  | { as: 'hosts' }
  | { as: 'success-statuses' };

/**
 * A key in agent.env. `Settings`, validation, `config/agent.env`, docs/reference/settings.md and the effect of a reload
 * are derived from it.
 */
export interface SettingEntry {
  /** Name in `Settings`, with its unit. */
  member: string;
  form: Form;
  /** Default in the format of agent.env. */
  default?: string;
  /** Description of a default that cannot be written as text. */
  otherwise?: string;
  /** Always set; a separate rule determines the value if the key is missing. */
  filled?: true;
  required?: true;
  /** Accepted only in agent.env, so that neither a credential nor the service's environment can set the key. */
  onlyInFile?: true;
  /** The text is never shown. */
  secret?: true;
  example?: string;
  /**
   * How a changed text is applied: by a reload, or only by a restart because sockets, addresses and files are opened
   * once.
   */
  appliedBy: 'reload' | 'restart';
  /** Description in sentences, also the comment in agent.env. */
  text: string;
  /** Additional sentences for docs/reference/settings.md. */
  more?: string;
}

export type SettingEntries = Readonly<Record<string, SettingEntry>>;

/** Value in the form that the agent uses: sizes in bytes, durations in milliseconds. */
export type ValueOf<F extends Form> = F extends { as: 'choice'; of: readonly (infer Choice)[] }
  ? Choice
  : F extends { as: 'switch' }
    ? boolean
    : F extends { as: 'count' | 'duration' | 'size' | 'time' }
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
/** Visible ASCII without spaces, so that the token is valid in a header. */
export const TOKEN = {
  as: 'text',
  pattern: /^[\x21-\x7e]+$/,
  what: 'a bearer token',
  example: 'letters and digits without spaces',
} as const;
