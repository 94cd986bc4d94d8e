/**
 * Interface of a source kind. Each kind is a folder that exports one object with this interface, listed in `kinds.ts`.
 * The object describes the kind's tags.yaml members for `config/`; other modules are loaded only when a source is
 * opened.
 */
import type { Clock } from '../base/clock.ts';
import type { Logger } from '../base/logger.ts';
import type { Brokers } from '../broker/brokers.ts';
import type { SourceReading } from '../config/source-kinds.ts';
import type { Source } from '../config/tags.ts';
import type { Gate } from './intake/gate.ts';
import type { Intake } from './intake/intake.ts';
import type { Point } from './points.ts';
import type { SourceStatus } from './status.ts';

export interface SourceKind<SourceSpec = unknown, ValueSpec = unknown> extends SourceReading<SourceSpec, ValueSpec> {
  /** Creates a running source and loads its dependencies. No connection is opened before `start`. */
  open(context: SourceContext<SourceSpec, ValueSpec>): Promise<RunningSource>;
  /**
   * Set if a test must not open the source a second time, because its program would run twice. A test then listens to
   * the running source.
   */
  readonly isTestedWhileRunning?: true;
  /** Set if the remote side reports only changes, regardless of the poll interval. In this case, silence is not a failure. */
  readonly reportsOnlyChanges?: true;
  /** Set if the agent starts a program that reads the source, whose memory counts towards the memory of the service. */
  readonly runsProgram?: true;
  /** Returns the missing software that the source requires, or `undefined` if all software is installed. */
  missing?(): { problem: string; hint: string } | undefined;
  /**
   * Returns the endpoint of a source, for connectivity checks. Omitted if sources of this kind do not connect to
   * anything.
   */
  placeOf?(source: SourceSpec): SourcePlace;
  /** Returns the address of a value in the notation of the device or broker, for example `unit 3 holding 1013`. */
  addressOf?(source: SourceSpec, value: ValueSpec): string;
  /** Requests the identity of a server without trusting it. Omitted if this kind requires no trust decision. */
  inspectServer?(context: InspectionContext<SourceSpec>): Promise<ServerIdentity>;
  /**
   * Lists the values that the broker, server or folder provides in the specified ranges. Opens a separate connection.
   * `waitMs` limits the wait for unsolicited values.
   */
  scan?(context: InspectionContext<SourceSpec>, what: readonly string[], waitMs: number): AsyncIterable<ScanStep>;
}

/** Identity that the remote side presents, for manual comparison before it is trusted. */
export interface ServerIdentity {
  /** Server certificate (DER); omitted if the server has no certificate. */
  certificate?: Buffer;
  /** Folder in which the certificate is stored once it is trusted. */
  trustFolder: string;
  /** Path of the certificate that this gateway presents to the server. */
  own: string;
  /** Security options that the server offers. */
  offers: readonly string[];
}

/** A scanned value: its tags.yaml members except `from`, and its current value. */
export interface ScannedValue {
  key: string;
  members: Readonly<Record<string, string | number>>;
  sample: string;
  /** Tag name contained in the scanned data, if any. */
  tag?: string;
}

/**
 * `source`: proposed members of the source that tags.yaml does not contain yet. `comment`: what the proposal does not
 * cover.
 */
export type ScanStep =
  | { found: ScannedValue }
  | { source: Readonly<Record<string, ProposedMember>> }
  | { comment: string }
  | { done: number; total: number };

export type ProposedMember = string | number | readonly (string | number)[] | Readonly<Record<string, string>>;

/**
 * Endpoint of a source: a host and port, a device file on this gateway, or a folder in which the source reads and moves
 * files.
 */
type SourcePlace = { host: string; port: number } | { device: string } | { folder: string; isWritten: boolean };

export interface SourceContext<SourceSpec = unknown, ValueSpec = unknown> {
  source: Source<SourceSpec>;
  points: readonly Point<ValueSpec>[];
  /** Destination for readings. */
  gate: Gate;
  status: SourceStatus;
  /** Creates drafts for data in the push format. */
  intake: Pick<Intake, 'draft'>;
  /**
   * Identifier that is unique to a state folder and the same for all agents that use this folder. Marks processes that
   * sources start.
   */
  instance: string;
  /** State folder. A source stores its files in a subfolder named after its kind. */
  stateDir: string;
  /** Clients for the brokers in tags.yaml, shared with `publish` actions. */
  brokers: Brokers;
  /**
   * Objects that sources of one kind share in this process, for example connections to devices that accept only one
   * connection.
   */
  shared: Shared;
  /** Returns the notes stored with values of this source, by name without `source/`. */
  notes(): Promise<ReadonlyMap<string, string>>;
  /** Whether a test opened the source in parallel with the running one. A test must not change files or sessions. */
  isTest: boolean;
  clock: Clock;
  log: Logger;
}

/** Process-wide objects by the source kind that created them. */
export class Shared {
  readonly #parts = new Map<string, unknown>();

  get<Part>(kind: string, make: () => Part): Part {
    if (!this.#parts.has(kind)) this.#parts.set(kind, make());
    return this.#parts.get(kind) as Part;
  }
}

export interface InspectionContext<SourceSpec = unknown> {
  source: Source<SourceSpec>;
  stateDir: string;
  /** Contains a separate client for the broker of the source, which is not started. */
  brokers: Brokers;
  clock: Clock;
  signal: AbortSignal;
}

/** A running source from tags.yaml. */
export interface RunningSource {
  start(): void;
  /**
   * Stops accepting readings. Does not wait until accepted readings are on disk; this is done by the gate. `gone`:
   * whether the source was removed from tags.yaml.
   */
  stop(gone?: boolean): Promise<void>;
  /**
   * Releases resources that `stop` kept for a successor, such as subscriptions. Called in the event loop turn in which
   * the successor starts.
   */
  leave?(): void;
  /** Reads the current value of a writable point, before scaling. Omitted if the remote side cannot be asked. */
  readOne?(point: Point, signal: AbortSignal): Promise<number>;
  /**
   * Writes a number, after scaling in reverse and rounding, to a writable point. Only `Writer` calls this method.
   * `guard` is called immediately before the request is sent, and throws if the request must no longer be sent.
   */
  write?(point: Point, raw: number, guard: () => void, signal: AbortSignal): Promise<void>;
  /** Requests values now, for a test that listens to the running source. */
  poll?(): void;
  /**
   * Applies new points or a new path after a reload, without a gap in the data. Only called if the time source is
   * unchanged. If the method returns `false` or is omitted, the source is stopped and reopened.
   */
  follow?(context: SourceContext<never, never>): Promise<boolean>;
}
