/** Short-lived reader process for commands that run without the agent. Reads or browses once, then exits. */
import type { Writable } from 'node:stream';
import type { Clock } from '../../base/clock.ts';
import { TagferryError } from '../../base/errors.ts';
import { SupervisedProgram } from '../../base/programs/supervised.ts';
import type { AgentLine, Inspected, ReaderLine } from '../../opcua/protocol.ts';
import type { InspectionContext, ScanStep, ServerIdentity } from '../source-kind.ts';
import {
  eachReaderLine,
  endpointOf,
  type OpcuaSpec,
  READER_MISSING,
  readerProgram,
  sendToReader,
} from './reader-program.ts';
import { ReaderRequests } from './reader-requests.ts';

type Context = InspectionContext<OpcuaSpec>;

export async function* scanOpcua(context: Context, what: readonly string[]): AsyncGenerator<ScanStep> {
  const reader = new OneOffReader(context);
  try {
    await reader.connect();
    yield* reader.requests.browse(what, context.signal);
  } finally {
    await reader.stop();
  }
}

/** Requests the identity of a server, for comparison before it is trusted. */
export async function inspectServer({ source, stateDir, clock }: Context): Promise<ServerIdentity> {
  const { url, identity, trustFolder } = endpointOf(source, stateDir);
  const inspected = Promise.withResolvers<Inspected>();
  const program = readerOf(clock, {
    tell: (input) => sendToReader(input, { inspect: { url, identity } }),
    take: (line) => 'inspected' in line && inspected.resolve(line.inspected),
    ended: (failed) => inspected.resolve({ failed }),
  });
  program.start();
  const found = await inspected.promise.finally(() => program.stop());
  if ('failed' in found) throw new TagferryError(found.failed, { code: 'source.opcua', hint: found.hint });
  const { certificate, own, endpoints } = found;
  return {
    trustFolder,
    own,
    offers: endpoints.map(({ policy, mode, users }) => `${securityOf(policy)} ${mode}: ${users.join(', ')}`),
    ...(certificate === undefined ? {} : { certificate: Buffer.from(certificate, 'base64') }),
  };
}

/** Returns the name of the security policy used in tags.yaml. */
const securityOf = (policy: string) => policy.replaceAll('_', '');

class OneOffReader {
  readonly requests = new ReaderRequests((ask, question) => {
    sendToReader(this.#input, { ask, question });
    return this.#input?.writable === true;
  });
  readonly #program: SupervisedProgram;
  readonly #connected = Promise.withResolvers<void>();
  #input: Writable | undefined;

  constructor({ source, stateDir, clock }: Context) {
    const start: AgentLine = { start: { endpoint: endpointOf(source, stateDir), items: [] } };
    this.#connected.promise.catch(() => {});
    this.#program = readerOf(clock, {
      tell: (input) => {
        this.#input = input;
        sendToReader(input, start);
      },
      take: (line) => this.#receive(line),
      ended: (how) => this.#fail(how),
    });
    this.#program.start();
  }

  connect(): Promise<void> {
    return this.#connected.promise;
  }

  async stop(): Promise<void> {
    await this.#program.stop();
  }

  #receive(line: ReaderLine): void {
    if ('answer' in line) this.requests.receive(line);
    else if (!('connected' in line)) return;
    else if (line.connected) this.#connected.resolve();
    else this.#fail(line.problem, line.hint);
  }

  #fail(problem: string, hint?: string): void {
    this.#connected.reject(
      new TagferryError(problem, { code: 'source.opcua', ...(hint === undefined ? {} : { hint }) }),
    );
    this.requests.fail(problem);
  }
}

interface ReaderCallbacks {
  tell(input: Writable): void;
  take(line: ReaderLine): void;
  ended(how: string): void;
}

/** Returns the reader command. Throws if the reader is not installed. */
function readerOf(clock: Clock, { tell, take, ended }: ReaderCallbacks): SupervisedProgram {
  const command = readerProgram();
  if (command === undefined) {
    throw new TagferryError(READER_MISSING.problem, { code: 'opcua.missing', hint: READER_MISSING.hint });
  }
  let stderr = '';
  return new SupervisedProgram({
    command,
    instance: `tagferry-opcua-${process.pid}`,
    clock,
    writeInput: tell,
    readOutput: (output) => eachReaderLine(output, take),
    onErrorLine: (line) => {
      stderr = line;
    },
    ended: (how) => ended(stderr === '' ? how : `${how}: ${stderr}`),
  });
}
