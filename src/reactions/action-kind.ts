import type { Clock } from '../base/clock.ts';
import type { Logger } from '../base/logger.ts';
import type { Action, ActionReading } from '../config/action-kinds.ts';
import type { RecentOutputs } from './command-output.ts';
import type { EventFacts } from './event-facts.ts';

/** Action kind: its syntax in reactions.yaml and its behavior. */
export interface ActionKind<Spec extends Action = Action> extends ActionReading<Spec> {
  /**
   * Returns the action name for the log and the event history, without credentials. After a restart, retries identify
   * the action by this name.
   */
  nameOf(action: Spec): string;
  /**
   * Returns the receiver of an action. If a receiver does not respond, its other actions are postponed. Returns
   * `undefined` for an action that always completes.
   */
  targetOf?(action: Spec): string | undefined;
  /**
   * Set if the action starts a program. Its retries are limited by number instead of `max_age`, and a program that never
   * exits does not postpone other actions.
   */
  readonly runsProgram?: true;
  /**
   * Set if the start of the action is recorded on disk before the action is performed, so that the journal also
   * contains an action during which the gateway crashed.
   */
  readonly recordsStart?: true;
  /** Performs the action. Does not throw if the receiver fails. */
  perform(action: Spec, context: ActionContext, parts: ActionParts): Promise<ActionResult> | ActionResult;
}

/** Parts of the agent that actions use. */
export interface ActionParts {
  clock: Clock;
  logger: Logger;
  /**
   * Identifies the state folder in the environment of commands, so that a new agent process finds commands left by a
   * killed one.
   */
  instance: string;
  publish: Publish;
  write: Write;
  outputs?: RecentOutputs;
  /** Environment for commands. Default: the environment of the agent. */
  environment?: NodeJS.ProcessEnv;
}

/** Resolves when the broker has confirmed the message (QoS 1). */
type Publish = (
  broker: string,
  topic: string,
  payload: string,
  options: { retain: boolean; signal: AbortSignal },
) => Promise<void>;

/** Writes a value through the guards. Does not throw. */
type Write = (request: {
  tag: string;
  key: string;
  group?: string | undefined;
  value: number;
  by: string;
  order: readonly [event: number, reaction: number, action: number];
  reasonAgainst(): string | undefined;
  signal: AbortSignal;
}) => Promise<{ outcome: 'written' | 'failed' | 'rejected' | 'unverified' | 'interrupted'; detail: string }>;

export interface ActionContext {
  reaction: string;
  event: EventFacts;
  /** Zero-based positions of the reaction in the configuration, and of the action in the reaction. */
  position: readonly [reaction: number, action: number];
  /** Returns why the event is too old, or its age too uncertain, for a write. Also applies to replayed events. */
  reasonAgainstWrite(): string | undefined;
  /** Aborted when the agent stops. The action is then interrupted and runs again after the next startup. */
  signal: AbortSignal;
}

/** Result of an action. `detail` is short and contains neither a body nor a secret. */
export interface ActionResult {
  outcome: 'done' | 'failed' | 'interrupted';
  detail?: string;
  /** Whether the target did not respond in time. */
  timedOut?: boolean;
  /** Whether the action is not retried after this failure. */
  isFinal?: boolean;
}

export type Perform = (action: Action, context: ActionContext) => Promise<ActionResult>;
