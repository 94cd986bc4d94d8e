/** Process that reads from one OPC UA server. `protocol.ts` defines the format of its standard input and output. */
import { systemClock } from '../base/clock.ts';
import { type AgentLine, HEARTBEAT_MS, type ReaderLine } from './protocol.ts';

// Disable the console, because node-opcua prints to standard output, which carries the protocol.
for (const method of ['log', 'info', 'warn', 'error', 'debug'] as const) console[method] = () => {};

const send = (line: ReaderLine) => void process.stdout.write(`${JSON.stringify(line)}\n`);
process.stdout.on('error', () => process.exit(1));
setInterval(() => send({ alive: true }), HEARTBEAT_MS);

const { Reader } = await import('./reader.ts');
const { inspect } = await import('./inspect.ts');

let reader: InstanceType<typeof Reader> | undefined;
let deletesSubscription = false;

async function handle(line: AgentLine): Promise<void> {
  if ('start' in line) {
    reader = new Reader({ task: line.start, send, clock: systemClock });
    void reader.run().then(() => process.exit(0));
  } else if ('stored' in line) reader?.stored(line.stored);
  else if ('ask' in line) await reader?.respond(line.ask, line.question);
  else if ('inspect' in line) send({ inspected: await inspect(line.inspect) });
  else deletesSubscription = true;
}

function stop(): void {
  if (reader) reader.stop(deletesSubscription);
  else process.exit(0);
}
process.on('SIGTERM', stop);

let rest = '';
process.stdin.setEncoding('utf8');
for await (const chunk of process.stdin as AsyncIterable<string>) {
  const lines = (rest + chunk).split('\n');
  rest = lines.pop()!;
  for (const line of lines) void handle(JSON.parse(line) as AgentLine);
}
// The agent has exited.
stop();
