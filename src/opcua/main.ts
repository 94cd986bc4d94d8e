/** Process that reads from one OPC UA server. `protocol.ts` defines the format of its standard input and output. */
import { createInterface } from 'node:readline';
import { systemClock } from '../base/clock.ts';
import { type AgentLine, HEARTBEAT_MS, type ReaderLine } from './protocol.ts';

// Disable the console, because node-opcua prints to standard output, which carries the protocol.
for (const method of ['log', 'info', 'warn', 'error', 'debug'] as const) console[method] = () => {};

const send = (line: ReaderLine) => void process.stdout.write(`${JSON.stringify(line)}\n`);
process.stdout.on('error', () => process.exit(1));
setInterval(() => send({ alive: true }), HEARTBEAT_MS);

const { Reader } = await import('./reader.ts');
const reader = new Reader(send, systemClock);

function stop(): void {
  void reader.stop().then(() => process.exit(0));
}
process.on('SIGTERM', stop);

for await (const text of createInterface({ input: process.stdin })) {
  const line = JSON.parse(text) as AgentLine;
  if ('open' in line) reader.open(line.open);
  else if ('stored' in line) reader.stored(line.stored);
  else void reader.answer(line.ask, line.question);
}
// The agent has exited.
stop();
