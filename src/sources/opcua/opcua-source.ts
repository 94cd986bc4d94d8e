/**
 * Values from an OPC UA server. A separate program, the reader (`src/opcua/`), runs one session at a time. Values pass
 * through the gate and are written together with the ID of their message. The reader is then notified and acknowledges
 * the message to the server. If the session or either process ends, the server resends messages that are not on disk to
 * the next session. Notes, written with the values:
 *
 *   server    the subscription, the namespaces of the first session, and the keys of the items
 *   message   the ID of the latest message
 *   times/N   see `PastValues`
 */
import { plain } from '../../base/foreign-text.ts';
import type { Note } from '../../buffer/client/notes.ts';
import {
  type Item,
  type ItemProblem,
  type KeptSubscription,
  MAX_MESSAGE_BYTES,
  type MessageId,
  type ReaderLine,
  type ReaderTask,
  type ReadValue,
  type SubscriptionLine,
} from '../../opcua/protocol.ts';
import { ProgramOutputLog } from '../formats/program-output-log.ts';
import type { Reading } from '../intake/gate.ts';
import { TroubleLog } from '../intake/trouble-log.ts';
import type { Point } from '../points.ts';
import type { RunningSource, SourceContext } from '../source-kind.ts';
import { PastValues, QUALITIES } from './past-values.ts';
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
type SendLine = ReturnType<ReaderProcess['sender']>;

interface ServerNote {
  /** Properties of the endpoint that identify the owner of the subscription. */
  at: string;
  namespaces: readonly string[];
  subscription?: KeptSubscription | undefined;
  keys: readonly string[];
}

const FIRST_PAUSE_MS = 1_000;
const MAX_PAUSE_MS = 30_000;
/** Minimum duration of a session after which the pause is reset. */
const STABLE_MS = 5_000;
const MAX_NAMED = 3;

export class OpcuaSource implements RunningSource {
  readonly #context: Context;
  readonly #reader: ReaderProcess;
  readonly #isInstalled: boolean;
  readonly #past: PastValues;
  readonly #trouble: TroubleLog;
  /** Log entries about individual values. Values with one cause share an entry, because a server can have thousands. */
  readonly #valueTrouble: TroubleLog;
  readonly #task: Pick<ReaderTask, 'endpoint' | 'items'>;
  #server: ServerNote;
  #isServerChanged = true;
  /** Latest message on disk. */
  #stored: MessageId | undefined;
  #pauseMs = FIRST_PAUSE_MS;
  readonly #end = new AbortController();

  constructor(context: Context, notes: ReadonlyMap<string, string>) {
    const { source, clock, log, instance, points, status } = context;
    this.#context = context;
    this.#trouble = new TroubleLog(log, clock);
    this.#valueTrouble = new TroubleLog(log, clock, 'values');
    this.#task = taskOf(context);
    const { url, user } = this.#task.endpoint;
    const at = JSON.stringify([url, user ?? null]);
    const keys = points.map(keyOf);
    const stored = JSON.parse(notes.get('server') ?? '{"keys":[]}') as ServerNote;
    this.#server = stored.at === at ? { ...stored, keys } : { at, namespaces: [], keys };
    if (stored.at === at) this.#stored = JSON.parse(notes.get('message') ?? 'null') ?? undefined;
    const readPage: ConstructorParameters<typeof PastValues>[1] = async (item, span, signal) => {
      const history = { item: this.#task.items[item]!, ...span };
      return (await this.#reader.answer({ history }, signal)).page!;
    };
    this.#past = new PastValues(context, readPage, notes, keys, stored.keys);
    const command = readerCommand();
    this.#isInstalled = command !== undefined;
    if (this.#isInstalled) status.disconnect();
    else status.disconnect(READER_MISSING.problem, READER_MISSING.hint);
    const outputLog = new ProgramOutputLog(source.name, log, clock);
    this.#reader = new ReaderProcess({
      command: command ?? [''],
      instance: `${instance}-${source.name}`,
      clock,
      started: () => void this.#open(this.#reader.sender()).catch(() => {}),
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
    if (this.#task.items.length === 0 || !this.#isInstalled) return;
    this.#reader.start();
    this.#past.run(this.#end.signal).catch(() => {});
  }

  async stop(isGone = false): Promise<void> {
    const { gate } = this.#context;
    this.#end.abort();
    await this.#reader.stop();
    if (isGone) {
      this.#past.forget();
      gate.record([], [this.#note('server', undefined), this.#note('message', undefined), ...this.#past.notes()]);
    }
    gate.commitSoon();
  }

  /** Returns the current value. Rejects if it is not a number. */
  async readOne(point: Point, signal: AbortSignal): Promise<number> {
    const { reading } = await this.#reader.answer({ read: itemOf(point as Point<OpcuaValue>) }, signal);
    const [raw, , , detail] = reading!;
    if (raw !== null && typeof raw !== 'string') return Number(raw);
    throw failure(detail?.problem ?? 'the value is not a number', detail?.hint);
  }

  async write(point: Point, raw: number, guard: () => void, signal: AbortSignal): Promise<void> {
    guard();
    const { node } = (point as Point<OpcuaValue>).spec;
    await this.#reader.answer({ write: { node, raw } }, signal);
  }

  /** Opens a session when all received values are on disk, so the server resends only messages that are missing. */
  async #open(send: SendLine): Promise<void> {
    const { gate, isTest } = this.#context;
    gate.commitSoon();
    await gate.write([]);
    const { namespaces, subscription: kept } = this.#server;
    send({ open: { ...this.#task, namespaces, kept, stored: this.#stored, isTest } });
  }

  #process(line: ReaderLine): void {
    if ('values' in line) this.#store(line.values, line.message);
    else if ('subscription' in line) this.#connect(line);
    else if ('lost' in line) this.#reportLost(line.lost);
    else if ('disconnected' in line) this.#endSession(line);
  }

  /** Without `message`, the values are a part of a message. */
  #store(values: readonly ReadValue[], message: MessageId | undefined): void {
    const { gate } = this.#context;
    const readings: Reading[] = [];
    for (const value of values) this.#addReading(readings, value);
    const notes = this.#notes();
    if (message !== undefined) notes.push(this.#note('message', message));
    // Message numbers are valid only for the current process.
    const send = this.#reader.sender();
    const acknowledge = () => {
      if (message === undefined) return;
      this.#stored = message;
      send({ stored: message });
    };
    // If the source stops first, or if only the first parts of the message are stored, the server resends the message.
    gate.write(readings, notes).then(acknowledge, () => {});
    if (gate.isFull) gate.commitSoon();
  }

  /** Adds the reading of a value, unless it is a duplicate. */
  #addReading(readings: Reading[], [item, raw, timeMs, status, detail]: ReadValue): void {
    const { status: sourceStatus, points, source, gate } = this.#context;
    const point = points[item];
    if (point === undefined) return;
    const { name } = point;
    const isOverflow = detail?.overflow === true;
    if (isOverflow) {
      sourceStatus.errors++;
      const text = 'the server discarded values because its queue was full';
      this.#valueTrouble.report({ event: 'opcua.overflow', source: source.name, value: name }, text, name);
    }
    if (raw !== null) {
      const isPlausible = timeMs !== null && gate.isPlausible(timeMs);
      if (!isPlausible || this.#past.record(item, timeMs, isOverflow))
        readings.push({ point, raw, timeMs: timeMs ?? undefined, quality: QUALITIES[status] });
      return;
    }
    const problem = plain(detail?.problem ?? 'not a number or text');
    readings.push({ point, failure: problem, hint: detail?.hint });
    sourceStatus.errors++;
    if (status === 0) sourceStatus.recordRejected(`${name}: ${problem}`);
    const fields = { source: source.name, value: name, error: problem };
    this.#valueTrouble.report({ event: 'opcua.unreadable', ...fields }, 'failed to read value', name);
  }

  #connect({ subscription, namespaces, isNew, rejected, history, revised, certificateEndsMs }: SubscriptionLine): void {
    const { gate, source, status, points } = this.#context;
    const { namespaces: first } = this.#server;
    this.#past.resume(history);
    if (isNew) this.#past.expectGaps();
    if (first.some((uri, at) => uri !== namespaces[at])) {
      const text = 'server renumbered its namespaces';
      this.#trouble.report({ event: 'opcua.namespaces_changed', source: source.name }, text);
    }
    const all = namespaces.map((uri, at) => first[at] ?? uri);
    const server = { ...this.#server, namespaces: [...all, ...first.slice(all.length)], subscription };
    // A subscription that continues is not written again.
    this.#isServerChanged ||= JSON.stringify(server) !== JSON.stringify(this.#server);
    this.#server = server;
    status.connect();
    status.certificateEndsMs = certificateEndsMs;
    status.warnWhile('revised', this.#textOf(revised));
    status.problem = this.#textOf(rejected);
    this.#trouble.recovered('opcua.away', { source: source.name }, 'OPC UA session restored');
    const readings: Reading[] = [];
    for (const [item, why] of rejected) {
      const { name, spec } = points[item]!;
      const problem = plain(why);
      status.errors++;
      readings.push({ point: points[item]!, failure: problem });
      const fields = { source: source.name, value: name, node: spec.node, error: problem };
      this.#valueTrouble.report({ event: 'opcua.refused', ...fields }, 'value rejected by the server', name);
    }
    gate.record(readings, this.#notes());
  }

  /** Returns the first problems with the names of their values, or `undefined` if there are none. */
  #textOf(problems: readonly ItemProblem[]): string | undefined {
    const { points } = this.#context;
    const { length } = problems;
    const named = problems.slice(0, MAX_NAMED).map(([item, problem]) => `${points[item]?.name}: ${plain(problem)}`);
    return length === 0
      ? undefined
      : `${named.join('; ')}${length > MAX_NAMED ? `; and ${length - MAX_NAMED} more` : ''}`;
  }

  #endSession({ problem, hint, isOversized }: Extract<ReaderLine, { disconnected: true }>): void {
    const { source, status, clock } = this.#context;
    if (status.connected && clock.monotonicMs() - status.sinceMs > STABLE_MS) this.#pauseMs = FIRST_PAUSE_MS;
    this.#disconnect(problem, hint);
    if (isOversized) {
      this.#server = { ...this.#server, subscription: undefined };
      const fields = { source: source.name, max_bytes: MAX_MESSAGE_BYTES };
      const text = 'message discarded, the server ignores the maximum message size';
      this.#trouble.report({ event: 'opcua.oversized', ...fields }, text);
    }
    const fields = { source: source.name, error: plain(problem) };
    this.#trouble.report({ event: 'opcua.away', ...fields }, 'OPC UA server unavailable');
    const send = this.#reader.sender();
    const opened = clock.sleep(this.#pauseMs, this.#end.signal).then(() => this.#open(send));
    opened.catch(() => {});
    this.#pauseMs = Math.min(this.#pauseMs * 2, MAX_PAUSE_MS);
  }

  #disconnect(problem: string, hint?: string): void {
    const { points, gate, status } = this.#context;
    this.#past.pause();
    status.errors++;
    status.disconnect(plain(problem), hint);
    gate.record(points.map((point) => ({ point, failure: undefined })));
  }

  /** Messages whose values are in the history of the server are not lost. */
  #reportLost(messages: number): void {
    const { source, status } = this.#context;
    this.#past.expectGaps();
    if (this.#past.isComplete) return;
    status.errors += messages;
    const fields = { source: source.name, messages };
    this.#trouble.report({ event: 'opcua.lost', ...fields }, 'messages are no longer available on the server');
  }

  /** Returns the notes that have changed, except for `message`. */
  #notes(): Note[] {
    const notes = this.#past.notes();
    if (this.#isServerChanged) notes.push(this.#note('server', this.#server));
    this.#isServerChanged = false;
    return notes;
  }

  #note(name: string, content: object | undefined): Note {
    return { name: `source/${this.#context.source.name}/${name}`, text: content && JSON.stringify(content) };
  }
}

function taskOf({ source, stateDir, points }: Context): Pick<ReaderTask, 'endpoint' | 'items'> {
  return { endpoint: endpointOf(source, stateDir), items: points.map(itemOf) };
}

/** Returns the monitored item for a value. */
function itemOf({ spec, everyMs }: Point<OpcuaValue>): Item {
  return { ...spec, samplingMs: everyMs };
}

/** Identifies an item and its series across restarts. */
function keyOf({ name, spec: { node, index, member } }: Point<OpcuaValue>): string {
  return [name, node, index ?? '', member ?? ''].join(' ');
}
