import type { SchemaObject } from 'ajv';
import type { Writable } from './tags.ts';

/** Action of a reaction. Its other members depend on the kind. */
export interface Action {
  readonly kind: string;
  readonly [member: string]: unknown;
}

/**
 * Reads the actions of one kind from the configuration. The kinds are implemented in `reactions/`, which this folder
 * must not import, so the caller passes them in.
 */
export interface ActionReading<Spec extends Action = Action> {
  /** Member in reactions.yaml that selects the kind, such as `post`. */
  readonly kind: string;
  readonly shape: SchemaObject;
  /** Schemas of the action's other members. Several kinds may use the same member name. */
  readonly members?: Readonly<Record<string, SchemaObject>>;
  /** Returns `undefined` after reporting a problem. `raw` matches its schema. */
  read(raw: RawAction, report: ActionReport): Spec | undefined;
  /** Members whose text may contain templates, as JSON pointers without the leading slash. */
  readonly templates?: readonly string[];
  /** Set if the action writes to a device, which requires a maximum event age and the setting WRITES. */
  readonly writes?: true;
  /** Source in tags.yaml that the action uses. */
  sourceOf?(action: Spec): string;
}

export type ActionKinds = readonly ActionReading[];

/** Action that matches its schema. */
export type RawAction = Readonly<Record<string, unknown>>;

/** Reports problems with one action. `member` is a JSON pointer without the leading slash. */
export interface ActionReport {
  problem(member: string, reason: string, instead: string, found?: string): void;
  warning(member: string, reason: string, instead: string, found?: string): void;
  /** Returns `timeout` in milliseconds, or `undefined` after reporting a problem. */
  timeout(defaultMs: number): number | undefined;
  /**
   * Returns whether the broker in a member uses topics or subjects, or `undefined` after reporting that it is not a
   * broker.
   */
  broker(member: string, name: string): 'topic' | 'subject' | undefined;
  /**
   * Returns the write limits of a value in tags.yaml, or `undefined` after reporting that the value cannot be written.
   */
  writable(member: string, value: { tag: string; key: string; group?: string }): Writable | undefined;
  /** Returns whether the text consists of one template that can contain a number. If not, reports a problem. */
  numberTemplate(member: string, text: string): boolean;
}
