/**
 * What a kind of source is: a folder of this room with one object of this interface, listed in `kinds.ts`. It says what stands in
 * tags.yaml (what `config/` needs of it, and all that is loaded at a start), and opens a running side where one is configured.
 */
import type { Clock } from '../base/clock.ts';
import type { Logger } from '../base/logger.ts';
import type { Brokers } from '../broker/brokers.ts';
import type { SourceReading } from '../config/source-kinds.ts';
import type { Source } from '../config/tags.ts';
import type { TestedValue } from './arrivals.ts';
import type { Gate } from './gate.ts';
import type { Intake } from './intake.ts';
import type { Point } from './points.ts';

export interface SourceKind<SourceSpec = unknown, ValueSpec = unknown> extends SourceReading<SourceSpec, ValueSpec> {
  /** Makes the running side; loads what it stands on. Nothing is connected before `start`. */
  open(context: SourceContext<SourceSpec, ValueSpec>): Promise<RunningSource>;
  /** Reads every configured value once, without storing any. Left out: there is nothing to read by itself. */
  test?(context: TestContext<SourceSpec, ValueSpec>): Promise<TestedValue[]>;
  /** The other side tells of changes alone, however often it looks: silence is no failure. */
  readonly tellsChanges?: true;
  /** What is written with values tells how far all was taken: nothing may be on disk before what came before it. */
  readonly inOrder?: true;
  /** It is read by a program that the agent starts, which shares the memory of the service. */
  readonly runsProgram?: true;
  /** What has to be installed before such a source can be read; `undefined` where all is there. */
  missing?(): { problem: string; hint: string } | undefined;
  /** What a source is connected to, for who looks whether it is there. Left out: to nothing. */
  placeOf?(source: SourceSpec): SourcePlace;
  /** Where a value is read, as the device or broker names it: `unit 3 holding 1013`. */
  addressOf?(source: SourceSpec, value: ValueSpec): string;
  /** Asks a server who it is, without trusting it. Left out: there is nothing to trust. */
  meet?(context: Omit<TestContext<SourceSpec, ValueSpec>, 'points'>): Promise<FirstContact>;
  /** What the device, broker or server offers of what was named; opens it for itself. */
  scan?(context: Omit<TestContext<SourceSpec, ValueSpec>, 'points'>, what: readonly string[]): AsyncIterable<ScanStep>;
}

/** Who the other side says it is, for somebody to compare before it is trusted. */
export interface FirstContact {
  /** Its certificate, DER; left out, it has none. */
  certificate?: Buffer;
  /** Where the certificate stands once it is trusted. */
  trustFolder: string;
  /** The certificate that this gateway shows. */
  own: string;
  /** What it offers, a line each. */
  offers: readonly string[];
}

/** One value that a scan found: what tags.yaml would say of it beside `from`, and what it holds now. */
export interface ScannedValue {
  key: string;
  members: Readonly<Record<string, string | number>>;
  sample: string;
  /** Where what was found says itself whose it is. */
  tag?: string;
}

export type ScanStep = { found: ScannedValue } | { done: number; total: number };

/** The far end of a source: a host and port, a device file of this machine, or a folder that it reads and moves files in. */
type SourcePlace = { host: string; port: number } | { device: string } | { folder: string; isWritten: boolean };

export interface SourceContext<SourceSpec = unknown, ValueSpec = unknown> {
  source: Source<SourceSpec>;
  points: readonly Point<ValueSpec>[];
  /** Where readings go. */
  gate: Gate;
  /** Makes drafts of what comes in the push format. */
  intake: Intake;
  /** The same for every daemon of one state folder, and for no other: marks what sources start. */
  instance: string;
  /** Where a source may keep files of its own, in a folder named as its kind. */
  stateDir: string;
  /** The clients of the brokers of tags.yaml, shared with `publish` of reactions. */
  brokers: Brokers;
  /** What sources of one kind share in this process: the connections to devices that take one. */
  shared: Shared;
  /** Facts that were written with values of this source, by their name without `source/`. */
  notes(): Promise<ReadonlyMap<string, string>>;
  clock: Clock;
  log: Logger;
}

/** Parts that live as long as the process, by the kind that made them. */
export class Shared {
  readonly #parts = new Map<string, unknown>();

  get<Part>(kind: string, make: () => Part): Part {
    if (!this.#parts.has(kind)) this.#parts.set(kind, make());
    return this.#parts.get(kind) as Part;
  }
}

export interface TestContext<SourceSpec = unknown, ValueSpec = unknown> {
  source: Source<SourceSpec>;
  stateDir: string;
  /** PLATFORM_CA: the authority of who names none of their own. */
  platformCaFile?: string | undefined;
  points: readonly Point<ValueSpec>[];
  /** How long to wait for what comes by itself. */
  waitMs: number;
  clock: Clock;
  log: Logger;
  signal: AbortSignal;
}

/** One source of tags.yaml at work. */
export interface RunningSource {
  start(): void;
  /** Nothing is taken any more; what was is the gate's, which alone waits for the disk. `gone`: tags.yaml no longer names it. */
  stop(gone?: boolean): Promise<void>;
  /** Ends what `stop` kept for a successor, such as subscriptions. Called in the turn of the event loop in which the successor started. */
  leave?(): void;
  state(): SourceState;
  /** Reads every configured value once over what is connected already; `waitMs` is for what comes by itself. Left out: that is listened to. */
  test?(signal: AbortSignal, waitMs: number): Promise<TestedValue[]>;
  /** What is there of what was named, beside what it does; `waitMs`: how long to wait for what comes by itself. */
  scan?(what: readonly string[], waitMs: number, signal: AbortSignal): AsyncIterable<ScanStep>;
  /**
   * Other points or another way of the same source after a reload, without a gap; whose time counts is the same. `false`, or left out: the source is stopped and
   * opened anew.
   */
  follow?(context: SourceContext<never, never>): Promise<boolean>;
}

/** What is known of a running source, beside what its gate counts. Times are monotonic. */
export interface SourceState {
  /** `undefined` where there is nothing to be connected to. */
  connected: boolean | undefined;
  /** Since when it is connected, or is not. */
  sinceMs: number;
  /** Why it is not connected, or what went wrong last: a code or a short message. */
  problem?: string;
  /** What a person can do about it. */
  hint?: string;
  /** Reads and messages that gave nothing, connections that failed. */
  errors: number;
  /** Messages that wait to be confirmed, and how many the broker gives before it waits, where that is known. */
  window?: { used: number; size: number | undefined };
  /** Messages that had been given to somebody before: known here and not stored again, or taken, and so perhaps twice at the platform. */
  redelivered?: { known: number; taken: number };
  /** Polls that were not made when they were due. */
  pollsLate: number;
  /** When the first of its certificates ends, its own or the server's, by the wall clock. */
  certificateEndsMs?: number;
}
