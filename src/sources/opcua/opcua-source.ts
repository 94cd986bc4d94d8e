/**
 * Values from an OPC UA server. A separate program, the reader (`src/opcua/`), owns the session and the subscription.
 * Values pass through the gate and are written together with the sequence number of their message. The reader is then
 * notified and acknowledges the message to the server. If either process crashes, the server resends messages that are
 * not on disk.
 */
import { plain } from '../../base/foreign-text.ts';
import type { Note } from '../../buffer/client/notes.ts';
import type { ValueColumns } from '../../buffer/format/value-columns.ts';
import type {
  HistoryPage,
  HistorySpan,
  Item,
  KeptSubscription,
  MessageId,
  ReaderLine,
  ReaderTask,
  ReadValue,
  Rejected,
} from '../../opcua/protocol.ts';
import { ProgramOutputLog } from '../formats/program-output-log.ts';
import type { Reading } from '../intake/gate.ts';
import { TroubleLog } from '../intake/trouble-log.ts';
import type { Point } from '../points.ts';
import type { RunningSource, SourceContext } from '../source-kind.ts';
import { type Gap, PastValues, QUALITIES } from './past-values.ts';
import {
  endpointOf,
  failure,
  type OpcuaSpec,
  type OpcuaValue,
  READER_MISSING,
  ReaderProcess,
  readerCommand,
} from './reader-process.ts';

type Context = SourceContext<OpcuaSpec, OpcuaValue>;

/** Content of the note `server`, written when it changes. `keys` names the items of the note `times`. */
interface ServerNote {
  /** Properties of the endpoint that identify the owner of the subscription. */
  at: string;
  namespaces: readonly string[];
  subscription?: KeptSubscription;
  keys: readonly string[];
}

/** Content of the note `times`, written with the values: the latest message and what `PastValues` stores. */
interface TimesNote extends ReturnType<PastValues['toJSON']> {
  message: MessageId | undefined;
}

const SERVER = 'server';
const TIMES = 'times';
/** Time limit for deleting the subscription on a removed server, in milliseconds. */
const LEAVE_MS = 2_000;
const MAX_NAMED = 3;
/**
 * Tolerance for rounding errors in a quotient, so that the server's dead band never suppresses more values than the
 * agent's.
 */
const ROUNDING = 1 - 1e-9;

export class OpcuaSource implements RunningSource {
  #context: Context;
  readonly #reader: ReaderProcess | undefined;
  readonly #past: PastValues;
  readonly #trouble: TroubleLog;
  /** Log entries about individual values. Values with one cause share an entry, because a server can have thousands. */
  readonly #valueTrouble: TroubleLog;
  readonly #task: ReaderTask;
  #server: ServerNote;
  #isServerChanged = true;
  /** Latest accepted message, and the latest one on disk. */
  #received: MessageId | undefined;
  #stored: MessageId | undefined;
  #rejected: Rejected = [];
  /** First value that is not a number or text. */
  #unreadable: { problem: string; hint: string | undefined } | undefined;
  readonly #end = new AbortController();

  constructor(context: Context, notes: ReadonlyMap<string, string>) {
    const { source, clock, log, instance, points, status } = context;
    this.#context = context;
    this.#trouble = new TroubleLog(log, clock);
    this.#valueTrouble = new TroubleLog(log, clock, 'values');
    const stored = JSON.parse(notes.get(SERVER) ?? '{"keys":[]}') as ServerNote;
    const { message, baseMs, times } = JSON.parse(notes.get(TIMES) ?? '{"times":[]}') as TimesNote;
    this.#task = taskOf(context);
    this.#server = { at: placeOf(this.#task), namespaces: [], keys: points.map(keyOf) };
    const { subscription, namespaces } = stored;
    if (subscription !== undefined && stored.at === this.#server.at) {
      this.#server = { ...this.#server, subscription, namespaces };
      this.#received = message;
      this.#stored = message;
    }
    const storedTimes = new Map(stored.keys.map((key, at) => [key, times[at]]));
    this.#past = new PastValues(
      {
        context: () => this.#context,
        readPage: (item, span, signal) => this.#readPage({ item: this.#task.items[item]!, ...span }, signal),
        store: (columns: ValueColumns) => this.#context.gate.writePast(columns, this.#notes()),
        filled: ({ values, gaps, fromMs, untilMs }) => {
          const fields = { source: source.name, values, gaps, from: isoTime(fromMs), until: isoTime(untilMs) };
          log.info({ event: 'opcua.gap_filled', ...fields }, 'missing values read from the server history');
        },
        missing: (gap, why) => this.#reportMissing(gap, why),
      },
      baseMs,
      this.#server.keys.map((key) => storedTimes.get(key)),
    );
    status.disconnect();
    const command = readerCommand();
    if (command === undefined) status.disconnect(READER_MISSING.problem, READER_MISSING.hint);
    const outputLog = new ProgramOutputLog(source.name, log, clock);
    this.#reader =
      command &&
      new ReaderProcess({
        command,
        instance: `${instance}-${source.name}`,
        clock,
        started: () => {
          const [received, stored] = [this.#received, this.#stored];
          this.#reader!.sender()({ start: { ...this.#task, kept: this.#server.subscription, received, stored } });
        },
        handle: (line) => this.#process(line),
        onErrorLine: (line) => outputLog.write(line),
        ended: (how, againInMs) => {
          this.#disconnect(how);
          const fields = { source: source.name, error: plain(how), again_in_ms: againInMs };
          log.warn({ event: 'opcua.ended', ...fields }, 'OPC UA process exited, restarting');
        },
      });
  }

  start(): void {
    if (this.#task.items.length === 0) return;
    this.#reader?.start();
    this.#past.run(this.#end.signal).catch(() => {});
  }

  async stop(isGone = false): Promise<void> {
    const { gate } = this.#context;
    this.#end.abort();
    if (isGone) this.#reader?.sender()({ leave: true });
    await this.#reader?.stop(isGone ? LEAVE_MS : 0);
    const removal = [SERVER, TIMES].map((name) => this.#note(name, undefined));
    if (isGone) gate.record([], removal);
    gate.commitSoon();
  }

  /** Applies changed tags without recreating the subscription, if the nodes are the same. */
  async follow(context: SourceContext<never, never>): Promise<boolean> {
    const next = context as SourceContext as Context;
    const { endpoint, items } = taskOf(next);
    const settingsOf = ({ source }: Context, task: Pick<ReaderTask, 'endpoint' | 'items'>) =>
      JSON.stringify([source.spec.historyMs, task.endpoint, task.items]);
    if (items.length === 0 || settingsOf(next, { endpoint, items }) !== settingsOf(this.#context, this.#task))
      return false;
    this.#context = next;
    this.#server = { ...this.#server, keys: next.points.map(keyOf) };
    this.#isServerChanged = true;
    return true;
  }

  /** Returns the current value. Rejects if it is not a number. */
  async readOne(point: Point, signal: AbortSignal): Promise<number> {
    for await (const line of this.#ask({ read: itemOf(point as Point<OpcuaValue>) }, signal)) {
      if (!('reading' in line)) continue;
      const [raw, , , detail] = line.reading;
      if (raw !== null && typeof raw !== 'string') return Number(raw);
      throw failure(detail?.problem ?? 'the value is not a number', detail?.hint);
    }
    throw failure('the OPC UA process did not respond');
  }

  async write(point: Point, raw: number, guard: () => void, signal: AbortSignal): Promise<void> {
    guard();
    const { node } = (point as Point<OpcuaValue>).spec;
    for await (const _ of this.#ask({ write: { node, raw } }, signal));
  }

  #ask(...[question, signal]: Parameters<ReaderProcess['ask']>): ReturnType<ReaderProcess['ask']> {
    if (this.#reader === undefined) throw failure(READER_MISSING.problem, READER_MISSING.hint);
    return this.#reader.ask(question, signal);
  }

  async #readPage(history: HistorySpan, signal: AbortSignal): Promise<HistoryPage> {
    for await (const line of this.#ask({ history }, signal)) if ('page' in line) return line.page;
    throw failure('the OPC UA process did not respond');
  }

  async #process(line: ReaderLine): Promise<void> {
    const { source, status } = this.#context;
    if ('values' in line) await this.#store(line.values, line.message);
    else if ('subscription' in line) this.#saveSubscription(line);
    else if ('rejected' in line) this.#reportRejected(line.rejected);
    else if ('history' in line) this.#past.resume(line.history);
    else if ('lost' in line) this.#reportLost(line.lost);
    else if ('oversized' in line) {
      status.errors++;
      const fields = { source: source.name, max_bytes: line.oversized };
      const text = 'message discarded, the server ignores the maximum message size';
      this.#trouble.report({ event: 'opcua.oversized', ...fields }, text);
    } else if ('connected' in line && line.connected) {
      status.connect();
      status.certificateEndsMs = line.certificateEndsMs;
      this.#setProblem();
      this.#trouble.recovered('opcua.away', { source: source.name }, 'OPC UA session restored');
    } else if ('connected' in line) {
      this.#disconnect(line.problem, line.hint);
      const fields = { source: source.name, error: plain(line.problem) };
      this.#trouble.report({ event: 'opcua.away', ...fields }, 'OPC UA server unavailable');
    }
  }

  /** Without `message`, the values are a part of a message. */
  async #store(values: readonly ReadValue[], message: MessageId | undefined): Promise<void> {
    const { gate, isTest } = this.#context;
    const readings = values.flatMap((value) => this.#readingOf(value));
    this.#received = message ?? this.#received;
    // Ask the current process before the commit, because message numbers are valid only for this process.
    const send = this.#reader!.sender();
    const stored = gate.write(readings, this.#notes());
    if (message !== undefined) {
      stored.then(
        () => {
          this.#stored = message;
          send({ stored: message });
        },
        // The source stopped. The server will resend the message.
        () => {},
      );
      return;
    }
    // A test stores nothing.
    if (isTest) return;
    // The next part is read when this one is on disk, so that memory use does not depend on the message size. After a
    // failed commit, the message is not acknowledged, because its final part is not reported as stored.
    gate.commitSoon();
    await stored.catch(() => {});
  }

  /** Returns the reading of a value; none if the value is a duplicate. */
  #readingOf([item, raw, timeMs, status, detail]: ReadValue): Reading[] {
    const { status: sourceStatus, points, source, gate } = this.#context;
    const point = points[item];
    if (point === undefined) return [];
    const { name } = point;
    const isOverflow = detail?.overflow === true;
    if (isOverflow) {
      sourceStatus.errors++;
      const text = 'the server discarded values because its queue was full';
      this.#valueTrouble.report({ event: 'opcua.overflow', source: source.name, value: name }, text, name);
    }
    // The earliest OPC UA timestamp, in 1601, means that the timestamp is missing.
    const time = timeMs !== null && timeMs >= 0 ? timeMs : undefined;
    const isPlausible = time !== undefined && gate.isPlausible(time);
    if (raw !== null && isPlausible && !this.#past.record(item, time, isOverflow)) return [];
    if (raw !== null) return [{ point, raw, timeMs: time, quality: QUALITIES[status] }];
    const problem = plain(detail?.problem ?? 'not a number or text');
    const hint = detail?.hint;
    sourceStatus.errors++;
    if (status === 0) {
      sourceStatus.recordRejected(`${name}: ${problem}`);
      this.#unreadable ??= { problem: `${name}: ${problem}`, hint };
      this.#setProblem();
      const fields = { source: source.name, value: name, error: problem };
      this.#valueTrouble.report({ event: 'opcua.unreadable', ...fields }, 'value is not a number or text', name);
    }
    return [{ point, failure: problem, hint }];
  }

  #saveSubscription({ subscription, namespaces, isNew }: Extract<ReaderLine, { isNew: boolean }>): void {
    const { gate, source, log } = this.#context;
    if (isNew) this.#past.expectGaps();
    if (this.#server.namespaces.some((uri, at) => uri !== namespaces[at])) {
      const fields = { source: source.name };
      log.warn({ event: 'opcua.namespaces_changed', ...fields }, 'the server has renumbered its namespaces');
    }
    this.#server = { ...this.#server, namespaces, subscription };
    this.#isServerChanged = true;
    gate.record([], this.#notes());
  }

  /** Returns the notes for the next commit. */
  #notes(): Note[] {
    const notes = [this.#note(TIMES, { message: this.#received, ...this.#past.toJSON() })];
    if (this.#isServerChanged) notes.push(this.#note(SERVER, this.#server));
    this.#isServerChanged = false;
    return notes;
  }

  #note(name: string, content: object | undefined): Note {
    return { name: `source/${this.#context.source.name}/${name}`, text: content && JSON.stringify(content) };
  }

  #disconnect(problem: string, hint?: string): void {
    const { points, gate, status } = this.#context;
    this.#past.pause();
    status.errors++;
    status.disconnect(plain(problem), hint);
    gate.record(points.map((point) => ({ point, failure: undefined })));
  }

  #reportRejected(rejected: Rejected): void {
    const { points, gate, status, source } = this.#context;
    this.#rejected = rejected;
    const readings: Reading[] = [];
    for (const [item, reason] of rejected) {
      const point = points[item];
      if (point === undefined) continue;
      status.errors++;
      readings.push({ point, failure: plain(reason) });
      const { name, spec } = point;
      const fields = { source: source.name, value: name, node: spec.node, error: reason };
      this.#valueTrouble.report({ event: 'opcua.refused', ...fields }, 'value rejected by the server', name);
    }
    gate.record(readings);
    this.#setProblem();
  }

  /** Sets the problem of a connected source: values that the server rejects, or the first unreadable value. */
  #setProblem(): void {
    const { points, status } = this.#context;
    if (!status.connected) return;
    const names = this.#rejected.slice(0, MAX_NAMED).map(([item, reason]) => `${points[item]?.name}: ${reason}`);
    const rejected = names.length === 0 ? undefined : `rejected by the server: ${names.join('; ')}`;
    const problem = rejected ?? this.#unreadable?.problem;
    status.problem = problem === undefined ? undefined : plain(problem);
    status.hint = rejected === undefined ? this.#unreadable?.hint : undefined;
  }

  /** Messages whose values are in the history of the server are not lost. */
  #reportLost(messages: number): void {
    const { source, status } = this.#context;
    this.#past.expectGaps();
    if (this.#past.hasAll) return;
    status.errors += messages;
    const fields = { source: source.name, messages };
    this.#trouble.report({ event: 'opcua.lost', ...fields }, 'messages are no longer available on the server');
  }

  #reportMissing({ item, fromMs, untilMs }: Gap, error: string): void {
    const { source, points } = this.#context;
    const name = points[item]?.name;
    if (name === undefined || source.spec.historyMs === 0) return;
    const fields = { source: source.name, value: name, from: isoTime(fromMs), until: isoTime(untilMs), error };
    this.#valueTrouble.report({ event: 'opcua.gap', ...fields }, 'value changes may be missing', name);
  }
}

function taskOf({ source, stateDir, points }: Context): ReaderTask {
  return { endpoint: endpointOf(source, stateDir), items: points.map(itemOf) };
}

/** Returns the monitored item for a value. */
function itemOf({ spec, everyMs, shaping }: Point<OpcuaValue>): Item {
  const { deadband, scale, maxSilenceMs } = shaping;
  // The server applies only absolute dead bands, because its relative dead bands have a different meaning. With a
  // maximum silence, it must send all values, because suppressed values cannot end a silence.
  const isForServer = deadband !== undefined && 'units' in deadband && deadband.units > 0 && maxSilenceMs === undefined;
  return {
    ...spec,
    samplingMs: everyMs,
    ...(isForServer ? { deadband: (deadband.units / Math.abs(scale)) * ROUNDING } : {}),
  };
}

function placeOf({ endpoint: { url, user } }: ReaderTask): string {
  return JSON.stringify([url, user ?? null]);
}

/** Identifies an item and its series across restarts. */
function keyOf({ name, spec: { node, index, member } }: Point<OpcuaValue>): string {
  return [name, node, index ?? '', member ?? ''].join(' ');
}

const isoTime = (ms: number): string => new Date(ms).toISOString();
