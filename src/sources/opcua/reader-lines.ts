import type { Readable, Writable } from 'node:stream';
import type { DaemonLine, ReaderLine } from '../../opcua/protocol.ts';

/** Ten thousand items of a subscription in one line. */
const MAX_LINE_BYTES = 16 * 1024 * 1024;

/** Calls `follow` for each line of the reader, one after the other. Rejects if a line exceeds `MAX_LINE_BYTES`. */
export async function eachReaderLine(
  output: Readable,
  follow: (line: ReaderLine) => Promise<void> | void,
): Promise<void> {
  output.setEncoding('utf8');
  let begun = '';
  for await (const piece of output as AsyncIterable<string>) {
    const lines = (begun + piece).split('\n');
    begun = lines.pop()!;
    if (begun.length > MAX_LINE_BYTES) throw new Error('the reader says a line without an end');
    for (const line of lines) await follow(JSON.parse(line) as ReaderLine);
  }
}

export function tellReader(input: Writable | undefined, line: DaemonLine): void {
  if (input?.writable) input.write(`${JSON.stringify(line)}\n`);
}
