import type { SchemaObject } from 'ajv';
import type { Source } from './tags.ts';

/**
 * What this room needs of a kind of source (modbus, mqtt, …) to read tags.yaml. The kinds live in `sources/`, above; whoever
 * reads a configuration hands them over.
 */
export interface SourceReading<SourceSpec = unknown, ValueSpec = unknown> {
  /** The member of a source that says what it is, and holds its address: `mqtt`. */
  readonly kind: string;
  /** As one would write it: `mqtt: mqtt://…`. Kinds without take no part in "add one of …". */
  readonly example?: string;
  /** Shapes of the members of a source, that of `kind` included. */
  readonly sourceMembers: Readonly<Record<string, SchemaObject>>;
  /** Shapes of the members that a value from such a source may have beside the common ones. */
  readonly valueMembers: Readonly<Record<string, SchemaObject>>;
  /** A member without which a value from such a source says nothing. */
  readonly needs?: { member: string; example: string };
  /** Read at intervals, this long unless told; left out, the source itself says when. */
  readonly everyMs?: number;
  /** The meaning of a source of sound shape; `undefined` where it has a problem, which is reported. */
  readSource(raw: Members, report: MemberReport): SourceSpec | undefined;
  /** The same of a value. `raw` has `{tag}` and its like filled in; `template` has not. */
  readValue(raw: Members, report: MemberReport, template: Members): ValueSpec | undefined;
  /** The group of agents that share the messages of such a source; `undefined` if it has none. */
  groupOf?(source: SourceSpec): string | undefined;
  /** Whether such a value comes with a time that all agents of the group see. */
  hasTime?(value: ValueSpec): boolean;
  /** What sound sources of this kind mean to one another: two speeds of one serial line are a problem. */
  compareSources?(sources: readonly ComparedSource<SourceSpec>[]): void;
  /** Brokers that `publish` of reactions may name, by what they are published to: levels of a topic, or of a subject. */
  readonly publishes?: 'topic' | 'subject';
}

export interface ComparedSource<Spec = unknown> {
  source: Source<Spec>;
  report: MemberReport;
}

export type SourceKinds = readonly SourceReading[];

export type Members = Readonly<Record<string, unknown>>;

/** Says what is wrong with a member, where it stands. */
export interface MemberReport {
  /** The source's or value's name, ready to print. */
  readonly name: string;
  problem(member: string, reason: string, instead: string): void;
  warning(member: string, reason: string, instead: string): void;
  /** A file that a member names: relative names start from the configuration folder. */
  pathOf(file: string): string;
  /** The same, and a warning where it is there and holds no PEM of that sort. */
  pemPathOf(member: string, file: string, holds: 'certificate' | 'key'): string;
}
