import type { UnitReference } from '../contract/values.ts';

/** tags.yaml as the agent uses it: every default filled in, every name resolved. */
export interface Tags {
  sources: ReadonlyMap<string, Source>;
  tags: ReadonlyMap<string, Tag>;
}

/** A source of tags.yaml. What only its kind understands is `spec`, as the kind read it (`SourceReading.readSource`). */
export interface Source<Spec = unknown> {
  kind: string;
  name: string;
  /** How often its values are read unless they say otherwise; 0 where the source itself says when. */
  everyMs: number;
  /** Whose time counts where a value comes with one. */
  timeFrom: 'arrival' | 'source';
  /** Which agent of its group this is. */
  member?: GroupMember;
  spec: Spec;
}

/** `member: 2/3` is index 1 of 3. */
export interface GroupMember {
  index: number;
  of: number;
}

export interface Tag {
  name: string;
  asset: number;
  instrumentation?: number;
  values: ReadonlyMap<string, TagValue>;
}

/** One value of a tag: a key on the platform. Keys and groups are lower-cased already. */
export interface TagValue {
  key: string;
  group?: string;
  unit?: UnitReference;
  /** Absent: programs push it. */
  from?: ValueOrigin;
}

/** Where a value comes from, and what is done with what comes. */
export interface ValueOrigin<Spec = unknown> {
  kind: string;
  source: string;
  /** How often it is read; 0 where the source itself says when. */
  everyMs: number;
  shaping: Shaping;
  /** What only the kind of the source understands, as the kind read it. */
  spec: Spec;
}

/** What becomes of a reading before it is a value (docs/interface.md, tags.yaml, "every kind"). */
export interface Shaping {
  /** value = raw x scale + offset. */
  scale: number;
  offset: number;
  /** A value is sent when it lies further than this from the last one sent: in units, or as a share of that. */
  deadband?: { units: number } | { share: number };
  /** Only what differs from the last one sent. */
  onChange?: true;
  /** Sent at least so often, whatever the dead band. */
  maxSilenceMs?: number;
  /** What a failure to read sends: nothing, or the last value once more with the status bad. */
  onFailure: 'skip' | 'bad';
}

/** A reading goes out as it came. */
export const AS_IT_COMES: Shaping = { scale: 1, offset: 0, onFailure: 'skip' };
