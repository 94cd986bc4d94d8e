/** The program that reads one OPC UA server: what is said on its standard input and output stands in `protocol.ts`. */
import { systemClock } from '../base/clock.ts';
import { type DaemonLine, HEARTBEAT_MS, type ReaderLine } from './protocol.ts';

// node-opcua talks to whoever develops with it, on the standard output, which here belongs to the daemon.
for (const word of ['log', 'info', 'warn', 'error', 'debug'] as const) console[word] = () => {};

const tell = (line: ReaderLine) => void process.stdout.write(`${JSON.stringify(line)}\n`);
process.stdout.on('error', () => process.exit(1));
setInterval(() => tell({ alive: true }), HEARTBEAT_MS);

const { Reader } = await import('./reader.ts');
const { inspect } = await import('./inspect.ts');

let reader: InstanceType<typeof Reader> | undefined;
let isGone = false;

async function take(line: DaemonLine): Promise<void> {
  if ('start' in line) {
    reader = new Reader({ task: line.start, tell, clock: systemClock });
    void reader.run().then(() => process.exit(0));
  } else if ('stored' in line) reader?.stored(line.stored);
  else if ('ask' in line) await reader?.answer(line.ask, line.question);
  else if ('inspect' in line) tell({ inspected: await inspect(line.inspect) });
  else isGone = true;
}

function stop(): void {
  if (reader) reader.stop(isGone);
  else process.exit(0);
}
process.on('SIGTERM', stop);

let begun = '';
process.stdin.setEncoding('utf8');
for await (const piece of process.stdin as AsyncIterable<string>) {
  const lines = (begun + piece).split('\n');
  begun = lines.pop()!;
  for (const line of lines) void take(JSON.parse(line) as DaemonLine);
}
// Whoever gave the task is gone.
stop();
