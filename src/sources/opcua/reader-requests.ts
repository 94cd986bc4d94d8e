import { TagferryError } from '../../base/errors.ts';
import type { FoundNode, HistoryPage, HistorySpan, Question, ReaderLine } from '../../opcua/protocol.ts';
import type { Point } from '../points.ts';
import { ScannedNames } from '../scanned-names.ts';
import type { ScanStep } from '../source-kind.ts';
import { itemOf, type OpcuaValue } from './reader-program.ts';

type AnswerLine = Extract<ReaderLine, { answer: number }>;

/** Sends a question to the reader. Returns `false` if the reader is not running. */
type Ask = (ask: number, question: Question) => boolean;

/** Pending questions to the reader, and the responses received so far. */
export class ReaderRequests {
  readonly #ask: Ask;
  readonly #open = new Map<number, { lines: AnswerLine[]; wake(): void }>();
  #last = 0;

  constructor(ask: Ask) {
    this.#ask = ask;
  }

  receive(line: AnswerLine): void {
    const open = this.#open.get(line.answer);
    open?.lines.push(line);
    open?.wake();
  }

  /** Fails all questions because the reader has exited. */
  fail(why: string): void {
    for (const answer of this.#open.keys()) this.receive({ answer, failed: why });
  }

  /** Returns the current value. Rejects if it is not a number. */
  async readOne(point: Point<OpcuaValue>, signal: AbortSignal): Promise<number> {
    for await (const line of this.#linesOf({ read: [itemOf(point)] }, signal)) {
      if (!('values' in line)) continue;
      const [[, raw, , , detail] = []] = line.values;
      if (raw !== undefined && raw !== null && typeof raw !== 'string') return Number(raw);
      throw failure(detail?.problem ?? 'the value is not a number', detail?.hint);
    }
    throw failure('the OPC UA process did not respond');
  }

  async write({ spec }: Point<OpcuaValue>, raw: number, guard: () => void, signal: AbortSignal): Promise<void> {
    guard();
    for await (const _ of this.#linesOf({ write: { node: spec.node, raw } }, signal));
  }

  /** Rejects if the reader is not connected. */
  async readHistory(span: HistorySpan, signal: AbortSignal): Promise<HistoryPage> {
    for await (const line of this.#linesOf({ history: span }, signal)) if ('page' in line) return line.page;
    throw failure('the OPC UA process did not respond');
  }

  async *browse(what: readonly string[], signal: AbortSignal): AsyncGenerator<ScanStep> {
    const names = new ScannedNames();
    for await (const line of this.#linesOf({ browse: what }, signal)) {
      if ('found' in line) yield { found: scannedOf(line.found, names) };
      else if ('done' in line) yield { done: line.done, total: line.total };
    }
  }

  /** Throws errors reported by the reader. */
  async *#linesOf(question: Question, signal: AbortSignal): AsyncGenerator<AnswerLine> {
    const number = ++this.#last;
    let wake = Promise.withResolvers<void>();
    const open = { lines: [] as AnswerLine[], wake: () => wake.resolve() };
    const onAbort = () => wake.resolve();
    signal.addEventListener('abort', onAbort, { once: true });
    this.#open.set(number, open);
    try {
      if (!this.#ask(number, question)) throw failure('the OPC UA process is not running');
      for (;;) {
        for (const line of open.lines.splice(0)) {
          if ('end' in line) return;
          if ('failed' in line) throw failure(line.failed, line.hint);
          yield line;
        }
        signal.throwIfAborted();
        if (open.lines.length > 0) continue;
        wake = Promise.withResolvers();
        await wake.promise;
      }
    } finally {
      this.#open.delete(number);
      signal.removeEventListener('abort', onAbort);
    }
  }
}

function failure(text: string, hint?: string): TagferryError {
  return new TagferryError(text, { code: 'source.opcua', ...(hint === undefined ? {} : { hint }) });
}

/** Derives keys from the last path segment, the element and the member. */
function scannedOf({ node, index, member, path, sample }: FoundNode, names: ScannedNames) {
  const part = `${index === undefined ? '' : `[${index}]`}${member === undefined ? '' : `.${member}`}`;
  const key = names.unique(`${path.slice(path.lastIndexOf('/') + 1)}${part}`);
  const members = {
    node,
    ...(index === undefined ? {} : { index }),
    ...(member === undefined ? {} : { member }),
  };
  return { key, members, sample: `${path}${part} = ${sample}` };
}
