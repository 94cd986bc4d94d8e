import type { Readable } from 'node:stream';
import { SupervisedProgram } from '../../base/programs/supervised.ts';
import { STATUS_FLAGS } from '../../buffer/format/value-columns.ts';
import { quote } from '../address-book.ts';
import type { TestedValue } from '../arrivals.ts';
import type { Quality } from '../gate.ts';
import { parseIsoTime } from '../iso-time.ts';
import type { Point } from '../points.ts';
import { parseLineProtocol } from '../push/line-protocol.ts';
import type { TestContext } from '../source-kind.ts';
import type { ExecSpec, ExecValue } from './exec-spec.ts';

interface Printed {
  tag: unknown;
  key: unknown;
  raw: number;
  timeMs?: number;
  quality?: Quality;
}

const MAX_TEXT = 1024 * 1024;

/** Starts the program for itself and waits until it printed each value, for `waitMs` at most; stores nothing. */
export async function testExec(context: TestContext<ExecSpec, ExecValue>): Promise<TestedValue[]> {
  const { source, points, waitMs, clock, signal } = context;
  const { command, format } = source.spec;
  const byName = new Map(points.map((point) => [point.name, point]));
  const found = new Map<Point<ExecValue>, TestedValue>();
  const enough = new AbortController();
  let words = '';
  let latest = '';
  const note = ({ tag, key, ...reading }: Printed) => {
    const point = byName.get(`${tag} ${key}`);
    if (!point || !Number.isFinite(reading.raw)) return;
    found.set(point, { point, ...reading });
    if (found.size === points.length) enough.abort();
  };
  const read = format === 'ndjson' ? readJson : readLines;
  const program = new SupervisedProgram({
    command,
    instance: `tagferry-test-${process.pid}-${source.name}`,
    clock,
    take: (output) =>
      eachText(output, (text) => {
        latest = text.trimEnd().split('\n').at(-1)!;
        read(text, note);
      }),
    said: (line) => {
      words = line;
    },
    ended: (how) => {
      words = words === '' ? how : `${how}: ${words}`;
      enough.abort();
    },
  });
  program.start();
  try {
    await clock.sleep(waitMs, AbortSignal.any([signal, enough.signal])).catch(() => {});
  } finally {
    await program.stop();
  }
  signal.throwIfAborted();
  const seconds = Math.round(waitMs / 1000);
  const printed =
    latest === '' ? 'it printed nothing' : `it did not print this value; its latest line: ${quote(latest)}`;
  const problem = words === '' ? `${printed} (within ${seconds} s)` : words;
  return points.map((point) => found.get(point) ?? { point, problem });
}

/** Whole lines as they come. */
async function eachText(output: Readable, read: (lines: string) => void): Promise<void> {
  output.setEncoding('utf8');
  let rest = '';
  for await (const piece of output as AsyncIterable<string>) {
    const text = rest + piece;
    const end = text.lastIndexOf('\n') + 1;
    if (end > 0) read(text.slice(0, end));
    rest = text.length - end > MAX_TEXT ? '' : text.slice(end);
  }
  if (rest !== '') read(rest);
}

function readJson(text: string, note: (printed: Printed) => void): void {
  for (const line of text.split('\n')) {
    let value: Record<string, unknown>;
    try {
      value = JSON.parse(line);
    } catch {
      continue;
    }
    const { tag, key, value: raw, timestamp, status } = value ?? {};
    if (typeof raw !== 'number') continue;
    const timeMs = typeof timestamp === 'string' ? parseIsoTime(timestamp) : Number(timestamp);
    const quality = Object.hasOwn(STATUS_FLAGS, String(status)) ? { quality: status as Quality } : {};
    note({ tag, key, raw, ...(Number.isFinite(timeMs) ? { timeMs } : {}), ...quality });
  }
}

function readLines(text: string, note: (printed: Printed) => void): void {
  let line: Printed[] = [];
  parseLineProtocol(text, 1e-6, {
    number: (tag, key, raw) => line.push({ tag, key, raw }),
    wrong: () => {},
    endOfLine: (timeMs) => {
      for (const one of line) note(Number.isNaN(timeMs) ? one : { ...one, timeMs });
      line = [];
    },
    unreadable: () => true,
  });
}
