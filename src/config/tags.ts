import type { UnitReference } from '../contract/values.ts';

/** Content of tags.yaml with defaults applied and names resolved. */
export interface Tags {
  sources: ReadonlyMap<string, Source>;
  tags: ReadonlyMap<string, Tag>;
}

/** Source in tags.yaml. `spec` is the part read by its kind (`SourceReading.readSource`). */
export interface Source<Spec = unknown> {
  kind: string;
  name: string;
  /** Default polling interval of its values, in milliseconds; 0 if the source is not polled. */
  everyMs: number;
  /** Which time to use for values that contain a timestamp. */
  timeFrom: 'arrival' | 'source';
  spec: Spec;
}

export interface Tag {
  name: string;
  asset: number;
  instrumentation?: number;
  values: ReadonlyMap<string, TagValue>;
}

/** Value of a tag: a key on the platform. Keys and groups are in lower case. */
export interface TagValue {
  key: string;
  group?: string;
  unit?: UnitReference;
  map?: ValueMap;
  /** Unset if programs push the value. */
  from?: ValueOrigin;
}

/** Numbers that replace strings in a value. */
export interface ValueMap {
  /** By string, without surrounding spaces. */
  numbers: Readonly<Record<string, number>>;
  /** Whether numbers stay unchanged, because none of the strings is a number. */
  passesNumbers: boolean;
}

/** Source and processing of a value. */
export interface ValueOrigin<Spec = unknown> {
  kind: string;
  source: string;
  /** Polling interval in milliseconds; 0 if the source is not polled. */
  everyMs: number;
  shaping: Shaping;
  /** Unset if the value is read-only. */
  writable?: Writable;
  /** Part that is specific to the kind of the source. */
  spec: Spec;
}

/** Limits for writes, in the value's unit. */
export interface Writable {
  min: number;
  max: number;
  /** Maximum change by writes within any period of `perMs` milliseconds. */
  maxRate?: { change: number; perMs: number };
  /** Whether the value is read back after a write. */
  verify: boolean;
  /** Maximum difference between the value written and the value read back. */
  tolerance: number;
}

/** Processing of readings before they become values (docs/interface.md, tags.yaml, "every kind"). */
export interface Shaping {
  /** value = raw x scale + offset. */
  scale: number;
  offset: number;
  /** Raw numbers and texts that mean "no value". */
  noValue?: readonly (number | string)[];
  /** Lowest and highest plausible value, in the value's unit. */
  range?: readonly [low: number, high: number];
  /** Minimum difference from the latest sent value: in units, or as a share of that value. */
  deadband?: { units: number } | { share: number };
  /** Send only values that differ from the latest sent value. */
  onChange?: true;
  /** Maximum time between sent values, in milliseconds, regardless of the dead band. */
  maxSilenceMs?: number;
  /** Action after a failed read: `skip` sends nothing, `bad` repeats the latest value with status bad. */
  onFailure: 'skip' | 'bad';
}

/** Processing that leaves readings unchanged. */
export const UNSHAPED: Shaping = { scale: 1, offset: 0, onFailure: 'skip' };
