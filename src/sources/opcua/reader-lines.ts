import type { Readable, Writable } from 'node:stream';
import type { DaemonLine, ReaderLine } from '../../opcua/protocol.ts';

/** Ten thousand items of a subscription in one line, and no flood. */
const MAX_LINE_BYTES = 16 * 1024 * 1024;

/** What the reader says, line by line; throws where a line has no end. */
export async function eachReaderLine(output: Readable, take: (line: ReaderLine) => void): Promise<void> {
  output.setEncoding('utf8');
  let begun = '';
  for await (const piece of output as AsyncIterable<string>) {
    const lines = (begun + piece).split('\n');
    begun = lines.pop()!;
    if (begun.length > MAX_LINE_BYTES) throw new Error('the reader says a line without an end');
    for (const line of lines) take(JSON.parse(line) as ReaderLine);
  }
}

export function tellReader(input: Writable | undefined, line: DaemonLine): void {
  if (input?.writable) input.write(`${JSON.stringify(line)}\n`);
}
