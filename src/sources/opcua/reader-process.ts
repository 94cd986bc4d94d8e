/** Process of the OPC UA reader (`src/opcua/`): where it is installed, its settings, and the exchange of lines with it. */
import { EventEmitter, on } from 'node:events';
import { existsSync } from 'node:fs';
import { join } from 'node:path';
import type { Readable, Writable } from 'node:stream';
import type { Clock } from '../../base/clock.ts';
import { TagferryError } from '../../base/errors.ts';
import { installedFile } from '../../base/installation.ts';
import { memoryLimitBytes } from '../../base/memory-limit.ts';
import { type SupervisedOptions, SupervisedProgram } from '../../base/programs/supervised.ts';
import type { Source } from '../../config/tags.ts';
import type { AgentLine, AnswerLine, Endpoint, Item, Question, ReaderLine } from '../../opcua/protocol.ts';
import { ScannedNames } from '../scanned-names.ts';
import type { InspectionContext, ScanStep, ServerIdentity } from '../source-kind.ts';

/** Server settings. By default, this gateway's certificate is stored in the state folder. */
export interface OpcuaSpec extends Omit<Endpoint, 'identity'> {
  identity?: { certFile: string; keyFile: string };
  /** Longest gap that is filled from the history of the server; 0 disables it. */
  historyMs: number;
}

export interface OpcuaValue extends Pick<Item, 'node' | 'index' | 'member' | 'queueSize' | 'trigger'> {}

/** Paths of the reader in the package `tagferry-opcua` and in a checkout. The reader is not included in the agent. */
const PACKAGED = '../tagferry-opcua/main.js';
const IN_CHECKOUT = 'src/opcua/main.ts';
const LIBRARY = 'node_modules/node-opcua-client/package.json';

const MIB = 1024 * 1024;
/** Minimum heap size of the reader, in MiB: enough for its library and two messages of the maximum size. */
const MIN_HEAP_MIB = 96;
const MAX_HEAP_MIB = 192;
/** Fraction of the unit's memory limit that the heap of one reader may use. */
const HEAP_SHARE = 0.4;
/** Maximum line length, sufficient for ten thousand subscription items. */
const MAX_LINE_BYTES = 16 * MIB;
/** Time without output after which the reader is restarted. Equals six heartbeats. */
const MAX_SILENT_MS = 30_000;

export const READER_MISSING = {
  problem: 'the package tagferry-opcua is not installed',
  hint: 'Install its package: apt install tagferry-opcua',
};

/** Returns the command of the OPC UA reader; `undefined` if it is not installed. */
export function readerCommand(): [string, ...string[]] | undefined {
  const hasLibrary = existsSync(installedFile(LIBRARY));
  const files = hasLibrary ? [PACKAGED, IN_CHECKOUT] : [PACKAGED];
  const file = files.map(installedFile).find((path) => existsSync(path));
  if (file === undefined) return undefined;
  const shareMib = Math.floor((memoryLimitBytes() * HEAP_SHARE) / MIB);
  // Limit the heap, because it could otherwise grow until the unit is killed: node-opcua loads a large amount of code.
  const heapMib = Math.min(Math.max(shareMib, MIN_HEAP_MIB), MAX_HEAP_MIB);
  return [process.execPath, '--max-semi-space-size=1', `--max-old-space-size=${heapMib}`, file];
}

/** Returns the endpoint. Without a configured certificate, it contains the folder of the default certificate. */
export function endpointOf({ spec }: Source<OpcuaSpec>, stateDir: string): Endpoint {
  const { identity = { folder: join(stateDir, 'opcua') }, historyMs: _, ...endpoint } = spec;
  return { ...endpoint, identity };
}

/** Calls `onLine` for each line from the reader. Rejects if a line exceeds `MAX_LINE_BYTES`. */
export async function eachReaderLine(output: Readable, onLine: (line: ReaderLine) => void): Promise<void> {
  output.setEncoding('utf8');
  let rest = '';
  for await (const chunk of output as AsyncIterable<string>) {
    const lines = (rest + chunk).split('\n');
    rest = lines.pop()!;
    if (rest.length > MAX_LINE_BYTES) throw new Error('a line from the OPC UA process exceeds the size limit');
    for (const line of lines) onLine(JSON.parse(line) as ReaderLine);
  }
}

interface ReaderOptions extends Pick<SupervisedOptions, 'command' | 'instance' | 'clock' | 'onErrorLine' | 'ended'> {
  /** Called when the process can receive lines. */
  started(): void;
  /** Called for each line except heartbeats and responses. */
  handle(line: ReaderLine): void;
}

/** Supervised reader. It is restarted if it sends no lines, including heartbeats. */
export class ReaderProcess {
  readonly #clock: Clock;
  readonly #program: SupervisedProgram;
  /** Emits the lines of each answer under its number. */
  readonly #answers = new EventEmitter().setMaxListeners(0);
  #asked = 0;
  #input: Writable | undefined;

  constructor(options: ReaderOptions) {
    this.#clock = options.clock;
    this.#program = new SupervisedProgram({
      ...options,
      started: () => {},
      writeInput: (input) => {
        this.#input = input;
        options.started();
      },
      readOutput: (output) => this.#read(output, options.handle),
      ended: (how, againInMs, hasExited) => {
        this.#input = undefined;
        if (this.#answers.listenerCount('error') > 0)
          this.#answers.emit('error', failure(`the OPC UA process ended: ${how}`));
        options.ended(how, againInMs, hasExited);
      },
    });
  }

  start(): void {
    this.#program.start();
  }

  async stop(): Promise<void> {
    await this.#program.stop();
  }

  /** Returns a function that sends lines to the current process only. */
  sender(): (line: AgentLine) => void {
    const input = this.#input;
    return (line) => {
      if (input?.writable) input.write(`${JSON.stringify(line)}\n`);
    };
  }

  /** Yields the lines of the answer. Throws the problem that the reader reports. */
  async *ask(question: Question, signal: AbortSignal): AsyncGenerator<AnswerLine> {
    if (this.#input?.writable !== true) throw failure('the OPC UA process is not running');
    const ask = ++this.#asked;
    const lines = on(this.#answers, String(ask), { signal });
    this.sender()({ ask, question });
    for await (const [line] of lines as AsyncIterable<[AnswerLine]>) {
      if (line.failed) throw failure(line.failed.problem, line.failed.hint);
      yield line;
      if (line.end) return;
    }
  }

  /** Returns the first line of an answer. */
  async answer(question: Question, signal: AbortSignal): Promise<AnswerLine> {
    for await (const line of this.ask(question, signal)) return line;
    throw failure('the OPC UA process did not respond');
  }

  /** Reads every line immediately. The reader limits the number of values that are not on disk. */
  async #read(output: Readable, handle: ReaderOptions['handle']): Promise<void> {
    let endWatch = () => {};
    // In two steps, so that a suspended agent reads the output before it restarts the process.
    const watch = (isSecondStep = false): void => {
      const silent = () => this.#program.restart(`no output for ${MAX_SILENT_MS / 1_000} s`);
      endWatch = this.#clock.after(MAX_SILENT_MS / 2, () => (isSecondStep ? silent() : watch(true)));
    };
    watch();
    try {
      await eachReaderLine(output, (line) => {
        endWatch();
        watch();
        if ('answer' in line) this.#answers.emit(String(line.answer), line);
        else if (!('alive' in line)) handle(line);
      });
    } finally {
      endWatch();
    }
  }
}

export function failure(problem: string, hint?: string): TagferryError {
  return new TagferryError(problem, { code: 'source.opcua', ...(hint === undefined ? {} : { hint }) });
}

type Context = InspectionContext<OpcuaSpec>;

/** Lists numeric values below nodes or paths. */
export async function* scanOpcua(context: Context, below: readonly string[]): AsyncGenerator<ScanStep> {
  const names = new ScannedNames();
  const scan = endpointOf(context.source, context.stateDir);
  for await (const { progress, found } of askOnce(context, { scan, below })) {
    if (progress) yield progress;
    if (found === undefined) continue;
    const { path, sample, ...members } = found;
    const { index, member } = members;
    const part = `${index === undefined ? '' : `[${index}]`}${member === undefined ? '' : `.${member}`}`;
    const key = names.unique(`${path.slice(path.lastIndexOf('/') + 1)}${part}`);
    yield { found: { key, members, sample: `${path}${part} = ${sample}` } };
  }
}

/** Requests the identity of a server, for comparison before it is trusted. */
export async function inspectServer(context: Context): Promise<ServerIdentity> {
  const { url, identity, trustFolder } = endpointOf(context.source, context.stateDir);
  for await (const { inspected } of askOnce(context, { inspect: { url, identity } })) {
    const { certificate, own, endpoints } = inspected!;
    return {
      trustFolder,
      own,
      // The names of security policies in tags.yaml have no underscores.
      offers: endpoints.map(({ policy, mode, users }) => `${policy.replaceAll('_', '')} ${mode}: ${users.join(', ')}`),
      ...(certificate === undefined ? {} : { certificate: Buffer.from(certificate, 'base64') }),
    };
  }
  throw failure('the OPC UA process did not respond');
}

/** Asks a process of its own, for commands that run without the agent. */
async function* askOnce({ clock, signal }: Context, question: Question): AsyncGenerator<AnswerLine> {
  const command = readerCommand();
  if (command === undefined)
    throw new TagferryError(READER_MISSING.problem, { code: 'opcua.missing', hint: READER_MISSING.hint });
  const started = Promise.withResolvers<void>();
  let latest = '';
  const reader = new ReaderProcess({
    command,
    instance: `tagferry-opcua-${process.pid}`,
    clock,
    started: started.resolve,
    handle: () => {},
    onErrorLine: (line) => {
      latest = `: ${line}`;
    },
    ended: (how) => started.reject(failure(`${how}${latest}`)),
  });
  reader.start();
  try {
    await started.promise;
    yield* reader.ask(question, signal);
  } finally {
    await reader.stop();
  }
}
