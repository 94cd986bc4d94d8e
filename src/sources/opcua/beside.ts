/** A reader of its own, for verbs without a daemon: it reads, or looks around, and ends. */
import type { Writable } from 'node:stream';
import type { Clock } from '../../base/clock.ts';
import { TagferryError } from '../../base/errors.ts';
import { SupervisedProgram } from '../../base/programs/supervised.ts';
import type { DaemonLine, Inspected, Question, ReaderLine } from '../../opcua/protocol.ts';
import type { TestedValue } from '../arrivals.ts';
import type { FirstContact, ScanStep, TestContext } from '../source-kind.ts';
import { Answers } from './answers.ts';
import { endpointOf } from './items.ts';
import type { OpcuaSpec, OpcuaValue } from './opcua-spec.ts';
import { eachReaderLine, tellReader } from './reader-lines.ts';
import { READER_MISSING, readerProgram } from './reader-program.ts';

const AWAY = 'Check address, port and firewall, and that the server runs.';

type Context = Omit<TestContext<OpcuaSpec, OpcuaValue>, 'points'>;

export async function testOpcua(context: TestContext<OpcuaSpec, OpcuaValue>): Promise<TestedValue[]> {
  const beside = new Beside(context);
  try {
    await beside.connect();
    return await beside.answers.read(context.points, beside.ask, context.signal);
  } catch (error) {
    if (!(error instanceof TagferryError)) throw error;
    const { message, hint } = error;
    return context.points.map((point) => ({ point, problem: message, ...(hint === undefined ? {} : { hint }) }));
  } finally {
    await beside.stop();
  }
}

export async function* scanOpcua(context: Context, what: readonly string[]): AsyncGenerator<ScanStep> {
  const beside = new Beside(context);
  try {
    await beside.connect();
    yield* beside.answers.browse(what, beside.ask, context.signal);
  } finally {
    await beside.stop();
  }
}

/** What a server says to whoever asks. */
export async function meetServer({ source, stateDir, clock }: Context): Promise<FirstContact> {
  const { url, identity, trustFolder } = endpointOf(source, stateDir);
  const answer = Promise.withResolvers<Inspected>();
  const program = readerOf(clock, {
    tell: (input) => tellReader(input, { inspect: { url, identity } }),
    take: (line) => 'inspected' in line && answer.resolve(line.inspected),
    ended: (failed) => answer.resolve({ failed }),
  });
  program.start();
  const found = await answer.promise.finally(() => program.stop());
  if ('failed' in found) throw new TagferryError(found.failed, { code: 'source.opcua', hint: AWAY });
  const { certificate, own, endpoints } = found;
  return {
    trustFolder,
    own,
    offers: endpoints.map(({ policy, mode, users }) => `${securityOf(policy)} ${mode}: ${users.join(', ')}`),
    ...(certificate === undefined ? {} : { certificate: Buffer.from(certificate, 'base64') }),
  };
}

/** As tags.yaml writes it. */
const securityOf = (policy: string) => policy.replaceAll('_', '');

class Beside {
  readonly answers = new Answers();
  readonly #program: SupervisedProgram;
  readonly #there = Promise.withResolvers<void>();
  #input: Writable | undefined;

  constructor({ source, stateDir, clock }: Context) {
    const start: DaemonLine = { start: { endpoint: endpointOf(source, stateDir), items: [] } };
    this.#there.promise.catch(() => {});
    this.#program = readerOf(clock, {
      tell: (input) => {
        this.#input = input;
        tellReader(input, start);
      },
      take: (line) => this.#take(line),
      ended: (how) => this.#fail(how),
    });
    this.#program.start();
  }

  readonly ask = (ask: number, question: Question): boolean => {
    tellReader(this.#input, { ask, question });
    return this.#input?.writable === true;
  };

  connect(): Promise<void> {
    return this.#there.promise;
  }

  async stop(): Promise<void> {
    await this.#program.stop();
  }

  #take(line: ReaderLine): void {
    if ('answer' in line) this.answers.take(line);
    else if (!('connected' in line)) return;
    else if (line.connected) this.#there.resolve();
    else this.#fail(line.problem, line.hint);
  }

  #fail(problem: string, hint?: string): void {
    this.#there.reject(new TagferryError(problem, { code: 'source.opcua', ...(hint === undefined ? {} : { hint }) }));
    this.answers.fail(problem);
  }
}

interface Talk {
  tell(input: Writable): void;
  take(line: ReaderLine): void;
  ended(how: string): void;
}

/** Throws where it is not installed. */
function readerOf(clock: Clock, { tell, take, ended }: Talk): SupervisedProgram {
  const command = readerProgram();
  if (command === undefined) {
    throw new TagferryError(READER_MISSING.problem, { code: 'opcua.missing', hint: READER_MISSING.hint });
  }
  let words = '';
  return new SupervisedProgram({
    command,
    instance: `tagferry-opcua-${process.pid}`,
    clock,
    tell,
    take: (output) => eachReaderLine(output, take),
    said: (line) => {
      words = line;
    },
    ended: (how) => ended(words === '' ? how : `${how}: ${words}`),
  });
}
