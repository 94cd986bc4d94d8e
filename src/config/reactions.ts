/** reactions.yaml as the agent uses it: defaults filled in, tag names resolved to ids. */
export interface Reaction {
  name: string;
  /** Event types; `"*"` matches every recognised one. */
  on: '*' | readonly string[];
  /** All must hold. */
  conditions: readonly Condition[];
  /** Per reaction and object; 0 is none. */
  cooldownMs: number;
  /** An event that occurred longer ago is only logged; 0 is no limit. */
  maxAgeMs: number;
  actions: readonly Action[];
}

export type Condition =
  | { kind: 'tag'; anyOf: readonly NamedTag[] }
  /** `path` starts in `content`: `threshold.type`, `data.value`. */
  | { kind: 'equals'; path: string; anyOf: readonly (string | number | boolean | null)[] }
  | { kind: 'range'; path: string; above?: number; below?: number };

/** A tag that a rule names, resolved to what events name. */
export interface NamedTag {
  tag: string;
  asset: number;
  instrumentation?: number;
}

export type Action =
  | { kind: 'run'; command: readonly [string, ...string[]]; timeoutMs: number; workingFolder?: string }
  | { kind: 'post'; url: string; body?: unknown; headers?: Readonly<Record<string, string>>; timeoutMs: number }
  | { kind: 'publish'; broker: string; topic: string; isSubject?: true; body?: unknown; retain: boolean }
  | { kind: 'log'; level: 'debug' | 'info' | 'warn' | 'error' };
