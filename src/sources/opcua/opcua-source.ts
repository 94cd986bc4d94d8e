/**
 * Values from an OPC UA server. A separate program, the reader (`src/opcua/`), owns the session and the subscription.
 * Values pass through the gate and are written together with the sequence number of their message. The reader is then
 * notified and acknowledges the message to the server. If either process crashes, the server resends messages that are
 * not on disk.
 */
import type { Writable } from 'node:stream';
import { messageOf } from '../../base/errors.ts';
import { plain } from '../../base/foreign-text.ts';
import { SupervisedProgram } from '../../base/programs/supervised.ts';
import type {
  AgentLine,
  Item,
  KeptSubscription,
  Question,
  ReaderLine,
  ReaderTask,
  ReadValue,
} from '../../opcua/protocol.ts';
import { ProgramOutputLog } from '../formats/program-output-log.ts';
import { isValidTime } from '../intake/draft.ts';
import type { Reading } from '../intake/gate.ts';
import { TroubleLog } from '../intake/trouble-log.ts';
import type { Point } from '../points.ts';
import type { RunningSource, SourceContext } from '../source-kind.ts';
import { GapFiller } from './gap-filler.ts';
import {
  eachReaderLine,
  endpointOf,
  itemOf,
  type OpcuaSpec,
  type OpcuaValue,
  QUALITIES,
  READER_MISSING,
  readerProgram,
  sendToReader,
} from './reader-program.ts';
import { ReaderRequests } from './reader-requests.ts';
import { positionKeyOf, ReadingPositions } from './reading-positions.ts';
import { ValueReports } from './value-reports.ts';

type Context = SourceContext<OpcuaSpec, OpcuaValue>;

/** Time without output after which the reader is restarted, in seconds. Equals six heartbeats. */
const MAX_SILENT_S = 30;
/** Time limit for deleting the subscription on a removed server, in milliseconds. */
const LEAVE_MS = 2_000;
const MAX_NAMED = 3;

/**
 * Note names. The first note contains the subscription and is written when it changes. The second note contains the
 * sequence number of the latest stored message and is written with the values of each message.
 */
const SUBSCRIPTION = 'subscription';
const MESSAGE = 'message';

export class OpcuaSource implements RunningSource {
  #context: Context;
  readonly #program: SupervisedProgram | undefined;
  readonly #requests = new ReaderRequests((ask, question) => this.#ask(ask, question));
  readonly #trouble: TroubleLog;
  readonly #reports: ValueReports;
  readonly #outputLog: ProgramOutputLog;
  #task: ReaderTask;
  #input: Writable | undefined;
  /**
   * Latest accepted value of each item, used to detect duplicates. A recreated subscription starts with the current
   * values.
   */
  #last = new Map<number, string>();
  readonly #positions: ReadingPositions;
  readonly #filler: GapFiller;
  #refused: readonly (readonly [item: number, reason: string])[] = [];
  /** First value that is not a number or text. */
  #unreadable: { problem: string; hint: string | undefined } | undefined;
  /** Number of lines received from the reader, including heartbeats. */
  #lines = 0;
  /** Whether reading is paused until accepted values are on disk. */
  #isWaiting = false;
  readonly #end = new AbortController();

  constructor(context: Context, notes: ReadonlyMap<string, string>) {
    const { source, clock, log, instance } = context;
    this.#context = context;
    this.#trouble = new TroubleLog(log, clock);
    this.#reports = new ValueReports(source.name, log, clock);
    this.#outputLog = new ProgramOutputLog(source.name, log, clock);
    context.status.disconnect();
    this.#task = taskOf(context, notes);
    const { points } = context;
    this.#positions = new ReadingPositions(noteOf(source.name, ''), points.map(positionKeyOf), notes);
    this.#filler = new GapFiller({
      positions: this.#positions,
      gate: context.gate,
      clock,
      maxSpanMs: source.spec.historyMs,
      pointOf: (item) => this.#context.points[item],
      readPage: (span, signal) => this.#requests.readHistory(span, signal),
      filled: (filled) => this.#reports.filled(filled),
      missing: (point, gap, why) => {
        if (source.spec.historyMs > 0) this.#reports.missing(point, gap, why);
      },
    });
    const command = readerProgram();
    if (command === undefined) context.status.disconnect(READER_MISSING.problem, READER_MISSING.hint);
    this.#program =
      command &&
      new SupervisedProgram({
        command,
        instance: `${instance}-${source.name}`,
        clock,
        writeInput: (input) => {
          this.#input = input;
          this.#send({ start: this.#task });
        },
        readOutput: (output) => eachReaderLine(output, (line) => this.#process(line)),
        onErrorLine: (line) => this.#outputLog.write(line),
        ended: (how, againInMs) => this.#reportEnd(how, againInMs),
      });
  }

  start(): void {
    if (this.#task.items.length === 0 || this.#program === undefined) return;
    this.#program.start();
    this.#watch(this.#program).catch(() => {});
    this.#filler.run(this.#end.signal).catch(() => {});
  }

  /**
   * Restarts the reader if it sends no lines, including heartbeats. Counts one-second steps, so that a suspension of
   * the gateway counts as one second.
   */
  async #watch(program: SupervisedProgram): Promise<never> {
    const { clock } = this.#context;
    for (let silentS = 0; ; ) {
      const lines = this.#lines;
      await clock.sleep(1_000, this.#end.signal);
      silentS = this.#lines === lines && this.#input !== undefined && !this.#isWaiting ? silentS + 1 : 0;
      if (silentS < MAX_SILENT_S) continue;
      program.restart(`no output for ${MAX_SILENT_S} s`);
      silentS = 0;
    }
  }

  async stop(isGone = false): Promise<void> {
    const { gate, source, clock } = this.#context;
    this.#end.abort();
    if (isGone) {
      this.#send({ leave: true });
      this.#input?.end();
      const notes = [SUBSCRIPTION, MESSAGE].map((name) => ({ name: noteOf(source.name, name), text: undefined }));
      gate.record([], [...notes, ...this.#positions.removal()]);
      // The reader exits when its input is closed.
      const end = clock.monotonicMs() + LEAVE_MS;
      while (this.#program?.startedMs !== undefined && clock.monotonicMs() < end) await clock.sleep(50);
    }
    await this.#program?.stop();
    gate.commitSoon();
  }

  /** Applies changed tags without recreating the subscription, if the nodes are the same. */
  async follow(context: SourceContext<never, never>): Promise<boolean> {
    const next = context as SourceContext as Context;
    const task = taskOf(next, new Map());
    const keyOf = ({ endpoint, items }: ReaderTask) => JSON.stringify([endpoint, items]);
    if (keyOf(task) !== keyOf(this.#task) || task.items.length === 0) return false;
    if (next.source.spec.historyMs !== this.#context.source.spec.historyMs) return false;
    this.#positions.rename(next.points.map(positionKeyOf));
    this.#context = next;
    return true;
  }

  readOne = (point: Point, signal: AbortSignal) => this.#requests.readOne(point as Point<OpcuaValue>, signal);

  write = (point: Point, ...rest: [raw: number, guard: () => void, signal: AbortSignal]) =>
    this.#requests.write(point as Point<OpcuaValue>, ...rest);

  #ask(ask: number, question: Question): boolean {
    if (this.#input?.writable !== true) return false;
    this.#send({ ask, question });
    return true;
  }

  #send(line: AgentLine): void {
    sendToReader(this.#input, line);
  }

  async #process(line: ReaderLine): Promise<void> {
    this.#lines++;
    if ('ordinal' in line) this.#store(line);
    else if ('values' in line && !('answer' in line)) await this.#storePart(line.values);
    else if ('oversized' in line) {
      this.#context.status.errors++;
      const fields = { source: this.#context.source.name, max_bytes: line.oversized };
      const text = 'message discarded, the server ignores the maximum message size';
      this.#trouble.report({ event: 'opcua.oversized', ...fields }, text);
    } else if ('answer' in line) this.#requests.receive(line);
    else if ('connected' in line) this.#reportState(line);
    else if ('subscription' in line) this.#saveSubscription(line.subscription, line.isNew);
    else if ('refused' in line) this.#reportRejected(line.refused);
    else if ('history' in line) {
      this.#positions.setHistory(line.history.filter((item) => this.#usesHistory(item)));
      this.#filler.resume();
    } else if ('lost' in line) this.#reportLost(line.lost);
  }

  /** A status trigger reports only some of the values in the history; arrival times differ from those in the history. */
  #usesHistory(item: number): boolean {
    const { source, points } = this.#context;
    return source.spec.historyMs > 0 && source.timeFrom === 'source' && points[item]?.spec.trigger !== 'status';
  }

  /**
   * Stores one part of a message. The next part is read when this part is on disk, so that memory use does not depend
   * on the message size.
   */
  async #storePart(values: readonly ReadValue[]): Promise<void> {
    const { gate, isTest } = this.#context;
    const readings = values.flatMap((value) => this.#readingOf(value));
    // After a failed commit, the message is not acknowledged, because its final part is not reported as stored.
    const stored = gate.write(readings, this.#positions.takeNotes());
    // A test stores nothing.
    if (isTest) return;
    this.#isWaiting = true;
    gate.commitSoon();
    await stored.catch(() => {});
    this.#isWaiting = false;
  }

  #store({ values, ordinal, subscription, sequence }: Extract<ReaderLine, { ordinal: number }>): void {
    const { gate, source } = this.#context;
    const readings = values.flatMap((value) => this.#readingOf(value));
    const position = { name: noteOf(source.name, MESSAGE), text: `${subscription} ${sequence}` };
    // Use the input of the current reader process, because ordinals are valid only for this process.
    const input = this.#input;
    gate.write(readings, [position, ...this.#positions.takeNotes()]).then(
      () => {
        this.#remember(subscription, sequence);
        sendToReader(input, { stored: ordinal });
      },
      // The source stopped or the store failed. The server will resend the message, and its values must not be
      // discarded as duplicates.
      () => this.#last.clear(),
    );
  }

  /** Returns the reading of a value; none if the value is a duplicate. */
  #readingOf([item, raw, timeMs, status, detail]: ReadValue): Reading[] {
    const { status: sourceStatus, points } = this.#context;
    const point = points[item];
    if (point === undefined) return [];
    if (detail?.overflow) {
      sourceStatus.errors++;
      this.#reports.overflow(point);
    }
    const time = timeMs !== null && isValidTime(timeMs) ? timeMs : undefined;
    const isMissing = detail?.overflow === true;
    if (raw !== null && time !== undefined && this.#positions.record(item, time, isMissing)) this.#filler.wake();
    const text = `${raw} ${timeMs} ${status}`;
    if (timeMs !== null && this.#last.get(item) === text) return [];
    this.#last.set(item, text);
    if (raw !== null) return [{ point, raw, timeMs: time, quality: QUALITIES[status] }];
    const { problem = 'not a number or text', hint } = detail ?? {};
    const failure = { point, failure: plain(problem), hint };
    sourceStatus.errors++;
    if (status !== 0) return [failure];
    sourceStatus.recordRejected(`${point.name}: ${plain(problem)}`);
    this.#unreadable ??= { problem: `${point.name}: ${problem}`, hint };
    this.#setProblem();
    this.#reports.unreadable(point, plain(problem));
    return [failure];
  }

  #saveSubscription(subscription: Omit<KeptSubscription, 'stored'>, isNew: boolean): void {
    const { gate, source } = this.#context;
    if (isNew) this.#positions.expectGaps();
    const { kept } = this.#task;
    const stored = isNew || kept?.stored === undefined ? {} : { stored: kept.stored };
    this.#task = { ...this.#task, kept: { ...subscription, ...stored } };
    const text = JSON.stringify({ at: placeOf(this.#task), ...subscription });
    gate.record([], [{ name: noteOf(source.name, SUBSCRIPTION), text }]);
  }

  /** Records the position for the next run of the reader. */
  #remember(subscription: number, sequence: number): void {
    const { kept } = this.#task;
    if (kept?.id === subscription) this.#task = { ...this.#task, kept: { ...kept, stored: sequence } };
  }

  #reportState(state: Extract<ReaderLine, { connected: boolean }>): void {
    const { source, status } = this.#context;
    if (state.connected) {
      status.connect();
      status.certificateEndsMs = state.certificateEndsMs;
      this.#setProblem();
      this.#trouble.recovered('opcua.away', { source: source.name }, 'OPC UA session restored');
      return;
    }
    this.#filler.pause();
    status.errors++;
    status.disconnect(plain(state.problem), state.hint);
    const error = plain(state.problem);
    this.#trouble.report({ event: 'opcua.away', source: source.name, error }, 'OPC UA server unavailable');
    this.#failAll();
  }

  #reportRejected(refused: readonly (readonly [item: number, reason: string])[]): void {
    const { points, gate, status } = this.#context;
    this.#refused = refused;
    const readings: Reading[] = [];
    for (const [item, reason] of refused) {
      const point = points[item];
      if (point === undefined) continue;
      status.errors++;
      readings.push({ point, failure: plain(reason) });
      this.#reports.rejected(point, reason);
    }
    gate.record(readings);
    this.#setProblem();
  }

  /** Sets the problem of a connected source: values that the server rejects, or the first unreadable value. */
  #setProblem(): void {
    const { points, status } = this.#context;
    if (!status.connected) return;
    const names = this.#refused.slice(0, MAX_NAMED).map(([item, reason]) => `${points[item]?.name}: ${reason}`);
    const refused = names.length === 0 ? undefined : `rejected by the server: ${names.join('; ')}`;
    const problem = refused ?? this.#unreadable?.problem;
    status.problem = problem === undefined ? undefined : plain(problem);
    status.hint = refused === undefined ? this.#unreadable?.hint : undefined;
  }

  /** Messages whose values are in the history of the server are not lost. */
  #reportLost(messages: number): void {
    const { source, points } = this.#context;
    this.#positions.expectGaps();
    if (points.every((_, item) => this.#positions.hasHistory(item))) return;
    this.#context.status.errors += messages;
    const fields = { source: source.name, messages };
    this.#trouble.report({ event: 'opcua.lost', ...fields }, 'messages are no longer available on the server');
  }

  #failAll(): void {
    const { points, gate } = this.#context;
    gate.record(points.map((point) => ({ point, failure: undefined })));
  }

  #reportEnd(how: string, againInMs: number): void {
    const { source, status, log } = this.#context;
    this.#input = undefined;
    this.#filler.pause();
    this.#requests.fail(`the OPC UA process ended: ${how}`);
    status.errors++;
    status.disconnect(plain(how));
    this.#failAll();
    const fields = { source: source.name, error: messageOf(how), again_in_ms: againInMs };
    log.warn({ event: 'opcua.ended', ...fields }, 'OPC UA process exited, restarting');
  }
}

function noteOf(source: string, name: string): string {
  return `source/${source}/${name}`;
}

/** Returns the endpoint properties that identify the owner of a subscription. */
function placeOf({ endpoint: { url, user } }: ReaderTask): string {
  return JSON.stringify([url, user ?? null]);
}

function taskOf({ source, stateDir, points }: Context, notes: ReadonlyMap<string, string>): ReaderTask {
  const items: Item[] = points.map((point: Point<OpcuaValue>) => itemOf(point));
  const task = { endpoint: endpointOf(source, stateDir), items };
  const kept = keptOf(notes, placeOf(task));
  return kept === undefined ? task : { ...task, kept };
}

function keptOf(notes: ReadonlyMap<string, string>, place: string): KeptSubscription | undefined {
  const text = notes.get(SUBSCRIPTION);
  if (text === undefined) return undefined;
  const { at, ...kept } = JSON.parse(text) as KeptSubscription & { at: string };
  if (at !== place) return undefined;
  const [subscription, sequence] = (notes.get(MESSAGE) ?? '').split(' ').map(Number);
  return subscription === kept.id && sequence !== undefined ? { ...kept, stored: sequence } : kept;
}
