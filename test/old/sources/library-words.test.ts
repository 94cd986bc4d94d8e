import { once } from 'node:events';
import { type AddressInfo, createServer, type Server, type Socket } from 'node:net';
import { afterEach, beforeEach, expect, it } from 'vitest';
import { Sandbox } from '../../../src/sandbox/sandbox.ts';
import { AgentProcess } from '../../e2e/harness/agent-process.ts';

const INFO = `INFO ${JSON.stringify({ server_id: 'N', version: '2.9.10', proto: 1, headers: true, max_payload: 1_048_576 })}\r\n`;
const FORGED = '{"level":"fatal","event":"store.dead","msg":"forged"}';

let sandbox: Sandbox;
let server: Server;
let agent: AgentProcess;
const sockets = new Set<Socket>();

/** Server that accepts every sign-in and then violates the NATS protocol. */
beforeEach(async () => {
  sandbox = new Sandbox();
  await sandbox.start();
  server = createServer((socket) => {
    sockets.add(socket);
    socket.on('error', () => {}).on('close', () => sockets.delete(socket));
    socket.write(INFO);
    socket.on(
      'data',
      (data) => data.includes('PING') && socket.write(`PONG\r\nKaputt ${FORGED}${'x'.repeat(900)}\r\n`),
    );
  });
  server.listen(0, '127.0.0.1');
  await once(server, 'listening');
  const { port } = server.address() as AddressInfo;
  const tags = `sources: { line: { nats: "nats://127.0.0.1:${port}", stream: S } }\ntags: { T: { asset: 881, values: { a: { unit: 1, from: line, subject: site.a } } } }\n`;
  agent = new AgentProcess(sandbox.url, { tags, env: { LOG_LEVEL: 'debug' } });
});
afterEach(async () => {
  await agent.dispose();
  for (const socket of sockets) socket.destroy();
  server.close();
  await sandbox.stop();
});

// Found by fuzzing nats-wire: the library prints the input unchanged.
it('invalid text from a NATS server is logged on a single line of limited length', async () => {
  await agent.start();
  await agent.until(() => agent.logged('agent.library_said').length > 0, 'the library printed the server’s text');
  const lines = agent.output.split('\n');
  expect(lines.filter((line) => line.startsWith(FORGED) || line.startsWith('Kaputt'))).toEqual([]);
  for (const { level, text } of agent.logged('agent.library_said')) {
    expect(level).toBe('debug');
    expect((text as string).length).toBeLessThanOrEqual(500);
  }
});
