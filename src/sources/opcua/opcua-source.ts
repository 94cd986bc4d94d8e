/**
 * An OPC UA server, read by a program of its own (`src/opcua/`), which holds the session and the subscription. What it gives goes through the
 * gate; with the values of each message its number is written, and when both are on disk the program is told, which then
 * acknowledges it to the server. So what a crash of either leaves is known to the next: the server sends again what is not on disk.
 */
import type { Readable, Writable } from 'node:stream';
import { messageOf } from '../../base/errors.ts';
import { plain } from '../../base/foreign-text.ts';
import { SupervisedProgram } from '../../base/programs/supervised.ts';
import type {
  DaemonLine,
  Item,
  KeptSubscription,
  Question,
  ReaderLine,
  ReaderTask,
  ReadValue,
} from '../../opcua/protocol.ts';
import type { TestedValue } from '../arrivals.ts';
import { isTimeTaken } from '../draft.ts';
import { SaidLines } from '../exec/said-lines.ts';
import type { Quality } from '../gate.ts';
import type { Point } from '../points.ts';
import type { RunningSource, ScanStep, SourceContext, SourceState } from '../source-kind.ts';
import { TroubleLog } from '../trouble-log.ts';
import { Answers } from './answers.ts';
import { endpointOf, itemOf } from './items.ts';
import type { OpcuaSpec, OpcuaValue } from './opcua-spec.ts';
import { eachReaderLine, tellReader } from './reader-lines.ts';
import { READER_MISSING, readerProgram } from './reader-program.ts';

type Context = SourceContext<OpcuaSpec, OpcuaValue>;

const QUALITIES: readonly Quality[] = ['good', 'uncertain', 'bad'];
/** A reader that has sent no line for so many seconds is restarted: six heartbeats. */
const MAX_SILENT_S = 30;
/** How long a server that nobody wants any more may take to be told so. */
const LEAVE_MS = 2_000;
const MAX_NAMED = 3;

/** The two notes: what was subscribed, written when it changes, and its last message on disk, written with its values. */
const SUBSCRIPTION = 'subscription';
const MESSAGE = 'message';

export class OpcuaSource implements RunningSource {
  #context: Context;
  readonly #program: SupervisedProgram | undefined;
  readonly #answers = new Answers();
  readonly #trouble: TroubleLog;
  readonly #said: SaidLines;
  #task: ReaderTask;
  #input: Writable | undefined;
  /** Of each item what was taken last: a subscription that is made anew begins with what is there. */
  #last = new Map<number, string>();
  #connected = false;
  #sinceMs: number;
  #problem: string | undefined;
  #hint: string | undefined;
  #refused: readonly (readonly [item: number, why: string])[] = [];
  #unreadable = 0;
  #certificateEndsMs: number | undefined;
  #errors = 0;
  /** Lines of the reader so far, heartbeats included. */
  #lines = 0;
  /** Whether the agent reads no further because the disk is behind. */
  #isWaiting = false;
  readonly #end = new AbortController();

  constructor(context: Context, notes: ReadonlyMap<string, string>) {
    const { source, clock, log, instance } = context;
    this.#context = context;
    this.#trouble = new TroubleLog(log, clock);
    this.#said = new SaidLines(source.name, log, clock);
    this.#sinceMs = clock.monotonicMs();
    this.#task = taskOf(context, notes);
    const command = readerProgram();
    if (command === undefined) ({ problem: this.#problem, hint: this.#hint } = READER_MISSING);
    this.#program =
      command &&
      new SupervisedProgram({
        command,
        instance: `${instance}-${source.name}`,
        clock,
        tell: (input) => this.#begin(input),
        take: (output) => this.#take(output),
        said: (line) => this.#said.tell(line),
        ended: (how, againInMs) => this.#sayEnd(how, againInMs),
      });
  }

  start(): void {
    if (this.#task.items.length === 0 || this.#program === undefined) return;
    this.#program.start();
    this.#watch(this.#program).catch(() => {});
  }

  /** Restarts a reader that sends nothing, not even heartbeats. Counts seconds one by one, so that a sleep of the whole machine is one. */
  async #watch(program: SupervisedProgram): Promise<never> {
    const { clock } = this.#context;
    for (let silentS = 0; ; ) {
      const lines = this.#lines;
      await clock.sleep(1_000, this.#end.signal);
      silentS = this.#lines === lines && this.#input !== undefined && !this.#isWaiting ? silentS + 1 : 0;
      if (silentS < MAX_SILENT_S) continue;
      program.restart(`it has sent nothing for ${MAX_SILENT_S} s`);
      silentS = 0;
    }
  }

  async stop(isGone = false): Promise<void> {
    const { gate, source, clock } = this.#context;
    this.#end.abort();
    if (isGone) {
      this.#tell({ leave: true });
      this.#input?.end();
      gate.note(...[SUBSCRIPTION, MESSAGE].map((name) => ({ name: noteOf(source.name, name), text: undefined })));
      // It ends by itself when it hears nothing more.
      const end = clock.monotonicMs() + LEAVE_MS;
      while (this.#program?.startedMs !== undefined && clock.monotonicMs() < end) await clock.sleep(50);
    }
    await this.#program?.stop();
    gate.hurry();
  }

  /** Other tags of the same nodes: the subscription goes on. */
  async follow(context: SourceContext<never, never>): Promise<boolean> {
    const next = context as SourceContext as Context;
    const task = taskOf(next, new Map());
    const what = ({ endpoint, items }: ReaderTask) => JSON.stringify([endpoint, items]);
    if (what(task) !== what(this.#task) || task.items.length === 0) return false;
    this.#context = next;
    return true;
  }

  state(): SourceState {
    const { points } = this.#context;
    const endsMs = this.#certificateEndsMs;
    const names = this.#refused.slice(0, MAX_NAMED).map(([item, why]) => `${points[item]?.name} (${why})`);
    const refused = names.length === 0 ? undefined : `the server does not give ${names.join(', ')}`;
    const unreadable = this.#unreadable === 0 ? undefined : 'some values are no numbers';
    const problem = this.#problem ?? refused ?? unreadable;
    return {
      connected: this.#connected,
      sinceMs: this.#sinceMs,
      ...(problem === undefined ? {} : { problem: plain(problem) }),
      ...(this.#hint === undefined ? {} : { hint: this.#hint }),
      errors: this.#errors,
      pollsLate: 0,
      ...(endsMs === undefined ? {} : { certificateEndsMs: endsMs }),
    };
  }

  async test(signal: AbortSignal): Promise<TestedValue[]> {
    const { points } = this.#context;
    return await this.#answers.read(points, (ask, question) => this.#ask(ask, question), signal);
  }

  async *scan(what: readonly string[], _waitMs: number, signal: AbortSignal): AsyncGenerator<ScanStep> {
    yield* this.#answers.browse(what, (ask, question) => this.#ask(ask, question), signal);
  }

  #ask(ask: number, question: Question): boolean {
    if (this.#input?.writable !== true) return false;
    this.#tell({ ask, question });
    return true;
  }

  #tell(line: DaemonLine): void {
    tellReader(this.#input, line);
  }

  #begin(input: Writable): void {
    this.#input = input;
    this.#tell({ start: this.#task });
  }

  async #take(output: Readable): Promise<void> {
    await eachReaderLine(output, (line) => this.#follow(line));
  }

  async #follow(line: ReaderLine): Promise<void> {
    this.#lines++;
    if ('ordinal' in line) this.#store(line);
    else if ('values' in line && !('answer' in line)) await this.#storePart(line.values);
    else if ('oversized' in line) {
      this.#errors++;
      const fields = { source: this.#context.source.name, max_bytes: line.oversized };
      this.#trouble.again(
        { event: 'opcua.oversized', ...fields },
        'message discarded, the server ignores the maximum message size',
      );
    } else if ('answer' in line) this.#answers.take(line);
    else if ('connected' in line) this.#sayState(line);
    else if ('subscription' in line) this.#keep(line.subscription, line.isNew);
    else if ('refused' in line) this.#sayRefused(line.refused);
    else if ('lost' in line) {
      this.#errors += line.lost;
      const fields = { source: this.#context.source.name, messages: line.lost };
      this.#trouble.again({ event: 'opcua.lost', ...fields }, 'a server no longer has messages that were not taken');
    }
  }

  /** The next part follows when this one is on disk: a message of any size uses the memory of one part. */
  async #storePart(values: readonly ReadValue[]): Promise<void> {
    for (const value of values) this.#takeValue(value);
    this.#isWaiting = true;
    // A rejected commit ends with the message: without its last part the server is sent no acknowledgement.
    this.#context.gate.hurry();
    await this.#context.gate.settled().catch(() => {});
    this.#isWaiting = false;
  }

  #store({ values, ordinal, subscription, sequence, overflows }: Extract<ReaderLine, { ordinal: number }>): void {
    const { gate, source } = this.#context;
    if (overflows > 0) {
      this.#errors += overflows;
      const fields = { source: source.name, values: overflows };
      this.#trouble.again({ event: 'opcua.overflow', ...fields }, 'the queue of a server was too small for what came');
    }
    for (const value of values) this.#takeValue(value);
    gate.note({ name: noteOf(source.name, MESSAGE), text: `${subscription} ${sequence}` });
    // Ordinals belong to one life of the reader.
    const input = this.#input;
    gate.committed().then(
      () => {
        this.#remember(subscription, sequence);
        tellReader(input, { stored: ordinal });
      },
      // The source has stopped or the store has failed: the server keeps the message, and its values are not duplicates when it returns.
      () => this.#last.clear(),
    );
  }

  #takeValue([item, raw, timeMs, status]: ReadValue): void {
    const { gate, points } = this.#context;
    const point = points[item];
    if (point === undefined) return;
    const text = `${raw} ${timeMs} ${status}`;
    if (timeMs !== null && this.#last.get(item) === text) return;
    this.#last.set(item, text);
    if (raw !== null) {
      const time = timeMs !== null && isTimeTaken(timeMs) ? timeMs : undefined;
      gate.take(point, raw, time, QUALITIES[status]);
      return;
    }
    gate.fail(point, status === 0 ? 'its value is not a number' : 'the server reports bad quality and no value');
    this.#errors++;
    if (status !== 0) return;
    this.#unreadable++;
    const fields = { source: this.#context.source.name, value: point.name };
    this.#trouble.again({ event: 'opcua.unreadable', ...fields }, 'a value of a server is no number', point.name);
  }

  #keep(subscription: Omit<KeptSubscription, 'stored'>, isNew: boolean): void {
    const { gate, source } = this.#context;
    const { kept } = this.#task;
    const stored = isNew || kept?.stored === undefined ? {} : { stored: kept.stored };
    this.#task = { ...this.#task, kept: { ...subscription, ...stored } };
    const text = JSON.stringify({ at: placeOf(this.#task), ...subscription });
    gate.note({ name: noteOf(source.name, SUBSCRIPTION), text });
  }

  /** For the next life of the program. */
  #remember(subscription: number, sequence: number): void {
    const { kept } = this.#task;
    if (kept?.id === subscription) this.#task = { ...this.#task, kept: { ...kept, stored: sequence } };
  }

  #sayState(state: Extract<ReaderLine, { connected: boolean }>): void {
    const { clock, source } = this.#context;
    if (state.connected !== this.#connected) this.#sinceMs = clock.monotonicMs();
    this.#connected = state.connected;
    if (state.connected) {
      this.#problem = this.#hint = undefined;
      this.#certificateEndsMs = state.certificateEndsMs;
      this.#trouble.over('opcua.away', { source: source.name }, 'a server of OPC UA is there again');
      return;
    }
    this.#errors++;
    this.#problem = state.problem;
    this.#hint = state.hint;
    const error = plain(state.problem);
    this.#trouble.again({ event: 'opcua.away', source: source.name, error }, 'a server of OPC UA is away');
    for (const point of this.#context.points) this.#context.gate.fail(point);
  }

  #sayRefused(refused: readonly (readonly [item: number, why: string])[]): void {
    const { points, source, gate } = this.#context;
    this.#refused = refused;
    for (const [item, why] of refused) {
      const point = points[item];
      if (point === undefined) continue;
      this.#errors++;
      gate.fail(point, plain(why));
      const fields = { source: source.name, value: point.name, node: point.spec.node, error: why };
      this.#trouble.again({ event: 'opcua.refused', ...fields }, 'a server does not give a value', point.name);
    }
  }

  #sayEnd(how: string, againInMs: number): void {
    const { source, clock, log, points, gate } = this.#context;
    this.#input = undefined;
    this.#answers.fail(`the program that reads OPC UA has ended: ${how}`);
    if (this.#connected) this.#sinceMs = clock.monotonicMs();
    this.#connected = false;
    this.#problem = how;
    for (const point of points) gate.fail(point);
    const fields = { source: source.name, error: messageOf(how), again_in_ms: againInMs };
    log.warn({ event: 'opcua.ended', ...fields }, 'the program that reads OPC UA has ended and is started again');
  }
}

function noteOf(source: string, name: string): string {
  return `source/${source}/${name}`;
}

/** What of a task makes another's subscription none of ours. */
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
