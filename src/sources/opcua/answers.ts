import { TagferryError } from '../../base/errors.ts';
import type { FoundNode, Question, ReaderLine } from '../../opcua/protocol.ts';
import type { TestedValue } from '../arrivals.ts';
import { isTimeTaken } from '../draft.ts';
import type { Quality } from '../gate.ts';
import type { Point } from '../points.ts';
import { ScannedNames } from '../scanned-names.ts';
import type { ScanStep } from '../source-kind.ts';
import { itemOf } from './items.ts';
import type { OpcuaValue } from './opcua-spec.ts';

type AnswerLine = Extract<ReaderLine, { answer: number }>;

/** Says a question to the reader; `false` where there is nobody to say it to. */
type Ask = (ask: number, question: Question) => boolean;

const QUALITIES: readonly Quality[] = ['good', 'uncertain', 'bad'];

/** Questions that the reader is asked, and what it has answered so far. */
export class Answers {
  readonly #open = new Map<number, { lines: AnswerLine[]; wake(): void }>();
  #last = 0;

  take(line: AnswerLine): void {
    const open = this.#open.get(line.answer);
    open?.lines.push(line);
    open?.wake();
  }

  /** There is nobody any more who would answer. */
  fail(why: string): void {
    for (const answer of this.#open.keys()) this.take({ answer, failed: why });
  }

  async read(points: readonly Point<OpcuaValue>[], ask: Ask, signal: AbortSignal): Promise<TestedValue[]> {
    if (points.length === 0) return [];
    const tested: TestedValue[] = [];
    try {
      for await (const line of this.#follow({ read: points.map((point) => itemOf(point)) }, ask, signal)) {
        if (!('values' in line)) continue;
        for (const [item, raw, timeMs, status, why] of line.values) {
          const point = points[item];
          if (point === undefined) continue;
          const time = timeMs !== null && isTimeTaken(timeMs) ? { timeMs } : {};
          tested.push(raw === null ? { point, problem: why } : { point, raw, ...time, quality: QUALITIES[status]! });
        }
      }
      return tested;
    } catch (error) {
      if (!(error instanceof TagferryError)) throw error;
      const { message, hint } = error;
      return points.map((point) => ({ point, problem: message, ...(hint === undefined ? {} : { hint }) }));
    }
  }

  async *browse(what: readonly string[], ask: Ask, signal: AbortSignal): AsyncGenerator<ScanStep> {
    const names = new ScannedNames();
    for await (const line of this.#follow({ browse: what }, ask, signal)) {
      if ('found' in line) yield { found: scannedOf(line.found, names) };
      else if ('done' in line) yield { done: line.done, total: line.total };
    }
  }

  /** Throws what the reader says that went wrong. */
  async *#follow(question: Question, ask: Ask, signal: AbortSignal): AsyncGenerator<AnswerLine> {
    const number = ++this.#last;
    let wake = Promise.withResolvers<void>();
    const open = { lines: [] as AnswerLine[], wake: () => wake.resolve() };
    const ended = () => wake.resolve();
    signal.addEventListener('abort', ended, { once: true });
    this.#open.set(number, open);
    try {
      if (!ask(number, question)) throw failure('the program that reads OPC UA does not run');
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
      signal.removeEventListener('abort', ended);
    }
  }
}

function failure(text: string, hint?: string): TagferryError {
  return new TagferryError(text, { code: 'source.opcua', ...(hint === undefined ? {} : { hint }) });
}

/** Keys are made of the last name of the path. */
function scannedOf({ node, path, sample }: FoundNode, names: ScannedNames) {
  const key = names.give(path.slice(path.lastIndexOf('/') + 1));
  return { key, members: { node }, sample: `${path} = ${sample}` };
}
