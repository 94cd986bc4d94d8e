import type { SchemaObject } from 'ajv';
import type { Source } from './tags.ts';

/**
 * Reads the parts of tags.yaml that are specific to a kind of source (modbus, mqtt, …). The kinds are implemented in
 * `sources/`, which this folder must not import, so the caller passes them in.
 */
export interface SourceReading<SourceSpec = unknown, ValueSpec = unknown> {
  /** Member of a source that selects the kind and contains the address, such as `mqtt`. */
  readonly kind: string;
  /** Example such as `mqtt: mqtt://…`. Kinds without an example are omitted from "add one of …". */
  readonly example?: string;
  /** Schemas of source members, including `kind`. */
  readonly sourceMembers: Readonly<Record<string, SchemaObject>>;
  /** Schemas of additional members for values from this kind of source. */
  readonly valueMembers: Readonly<Record<string, SchemaObject>>;
  /** Required member of a value from this kind of source. */
  readonly needs?: { member: string; example: string };
  /** Default polling interval; 0 if sources are polled only if `every` is set; `undefined` if they are never polled. */
  readonly everyMs?: number;
  /** Reads a source that matches its schema. Returns `undefined` after reporting a problem. */
  readSource(raw: Members, report: MemberReport): SourceSpec | undefined;
  /** Reads a value. Placeholders such as `{tag}` are replaced in `raw` but not in `template`. */
  readValue(raw: Members, report: MemberReport, template: Members): ValueSpec | undefined;
  /** Returns the arguments of `problem` if the members of a value contradict those of its source. */
  conflictOf?(source: SourceSpec, value: ValueSpec): Parameters<MemberReport['problem']> | undefined;
  /** Returns the raw numbers that a `no_value` entry stands for. If omitted, only numbers are supported. */
  noValueOf?(
    value: ValueSpec,
    code: number | string,
  ): { numbers: readonly number[] } | { reason: string; instead: string };
  /** Returns the group of agents that share the source's messages, or `undefined` if there is none. */
  groupOf?(source: SourceSpec): string | undefined;
  /** Whether the value has a timestamp that is the same for all agents of the group. */
  hasTime?(value: ValueSpec): boolean;
  /** Checks all valid sources of this kind for conflicts, for example two speeds on one serial line. */
  compareSources?(sources: readonly ComparedSource<SourceSpec>[]): void;
  /** Set if values of this kind can be written. */
  readonly writing?: WritingRules<SourceSpec, ValueSpec>;
  /** Kind of destination if reactions can publish to these brokers: a topic or a subject. */
  readonly publishes?: 'topic' | 'subject';
}

export interface WritingRules<SourceSpec = unknown, ValueSpec = unknown> {
  /** Returns the reason why this value cannot be written and a correction, or `undefined` if it can. */
  problem(value: ValueSpec): { reason: string; instead: string } | undefined;
  /**
   * Returns the number that the device stores if `raw` is written, after rounding; `undefined` if `raw` is out of
   * range.
   */
  storedFor(value: ValueSpec, raw: number): number | undefined;
  /**
   * Returns names of the registers, node, metric or topic that a write changes, each with the address of its device or
   * broker. Equal names from different sources denote the same target.
   */
  targetsOf(source: SourceSpec, value: ValueSpec): readonly string[];
}

export interface ComparedSource<Spec = unknown> {
  source: Source<Spec>;
  report: MemberReport;
}

export type SourceKinds = readonly SourceReading[];

export type Members = Readonly<Record<string, unknown>>;

/** Reports a problem at the member's location. */
export interface MemberReport {
  /** Printable name of the source or value. */
  readonly name: string;
  /** Returns `undefined`, like the functions that report a problem. */
  problem(member: string, reason: string, instead: string): undefined;
  warning(member: string, reason: string, instead: string): void;
  /** Returns the text of a number or boolean in a member as written, such as 002. `below`: JSON pointer below the member. */
  writtenText(member: string, below?: string): string | undefined;
  /** Resolves the path in a member against the configuration folder. */
  pathOf(file: string): string;
  /** Like `pathOf`, but also warns if the file exists and does not contain PEM of the expected kind. */
  pemPathOf(member: string, file: string, holds: 'certificate' | 'key'): string;
}
