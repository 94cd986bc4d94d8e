import { connect } from 'node:net';
import { join } from 'node:path';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { Sandbox } from '../../../src/sandbox/sandbox.ts';
import { AgentProcess } from '../../e2e/harness/agent-process.ts';

let sandbox: Sandbox;
let agent: AgentProcess;

beforeAll(async () => {
  sandbox = new Sandbox({ limits: { perUser: 0, perApiKey: 0, perAddress: 0 } });
  await sandbox.start();
  agent = new AgentProcess(sandbox.url, {
    tags: 'tags: { FT-101: { asset: 881, values: { flow: { unit: 12 } } } }\n',
  });
  await agent.start();
});
afterAll(async () => {
  await agent.dispose();
  await sandbox.stop();
});

/** Valid request per socket, and the marker that must not be read as part of a request. */
const LISTENERS = [
  ['ingest', () => agent.ingest, 'POST /v1/values'],
  ['webhook', () => agent.webhook, 'POST /webhook'],
  ['operations', () => agent.ops, 'GET /healthz'],
  ['control', () => join(agent.state, 'control.sock'), 'POST /status'],
] as const;

/** Complete heads whose end is ambiguous; a second request follows each. */
const DOUBTFUL: readonly [what: string, head: string][] = [
  ['a length and chunks', 'Content-Length: 5\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n'],
  ['chunks and a length', 'Transfer-Encoding: chunked\r\nContent-Length: 5\r\n\r\n0\r\n\r\n'],
  ['two lengths', 'Content-Length: 0\r\nContent-Length: 44\r\n\r\n'],
  ['a list of lengths', 'Content-Length: 0, 44\r\n\r\n'],
  ['a length with a sign', 'Content-Length: +0\r\n\r\n'],
  ['a hexadecimal length', 'Content-Length: 0x0\r\n\r\n'],
  ['a length that is too large', 'Content-Length: 18446744073709551616\r\n\r\n'],
  ['a space before the colon', 'Transfer-Encoding : chunked\r\nContent-Length: 0\r\n\r\n0\r\n\r\n'],
  ['an unknown transfer coding', 'Transfer-Encoding: xchunked\r\n\r\n0\r\n\r\n'],
  ['a coding after chunked', 'Transfer-Encoding: chunked, identity\r\n\r\n0\r\n\r\n'],
  ['chunks twice', 'Transfer-Encoding: chunked\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n'],
  ['a header over two lines', 'Content-Length: 0\r\nX-A: b\r\n Transfer-Encoding: chunked\r\n\r\n'],
  ['a chunk size with a sign', 'Transfer-Encoding: chunked\r\n\r\n+0\r\n\r\n'],
  ['a chunk size that is too large', 'Transfer-Encoding: chunked\r\n\r\n10000000000000000\r\n\r\n'],
  ['a chunk longer than its size', 'Transfer-Encoding: chunked\r\n\r\n1\r\nxx\r\n0\r\n\r\n'],
  ['a chunk extension that contains a line feed', 'Transfer-Encoding: chunked\r\n\r\n0;a\nb\r\n\r\n'],
  ['a NUL in a header', 'X-A: a\0b\r\nContent-Length: 0\r\n\r\n'],
  ['a header without a name', ': x\r\nContent-Length: 0\r\n\r\n'],
  ['a bare carriage return in a header', 'X-A: a\rContent-Length: 44\r\nContent-Length: 0\r\n\r\n'],
];

/** Everything received until the connection closes. */
function answered(path: string, bytes: string): Promise<string> {
  return new Promise((resolve) => {
    let text = '';
    const socket = connect({ path });
    socket.on('data', (chunk) => {
      text += chunk.toString('latin1');
    });
    socket.on('error', () => {});
    socket.once('close', () => resolve(text));
    socket.write(bytes);
  });
}

const statusesIn = (text: string) => [...text.matchAll(/HTTP\/1\.1 (\d{3})/g)].map((match) => Number(match[1]));

describe.each(LISTENERS)('%s listener', (_, path, request) => {
  const second = `${request} HTTP/1.1\r\nHost: localhost\r\nContent-Length: 0\r\n\r\n`;
  const last = second.replace('Content-Length', 'Connection: close\r\nContent-Length');

  it.each(DOUBTFUL)('does not process a second request smuggled after %s', async (_what, head) => {
    const text = await answered(path(), `${request} HTTP/1.1\r\nHost: localhost\r\n${head}${second}`);
    const statuses = statusesIn(text);
    // The valid part may have a response; after it, only the rejection follows.
    expect(statuses.length).toBeLessThanOrEqual(2);
    expect(statuses.at(-1)).toBe(400);
    expect(await healthy()).toBe(200);
  });

  it('does not parse the body of a request that was rejected early as another request', async () => {
    const head = `POST /nothing-here HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\nContent-Length: ${second.length}\r\n\r\n`;
    expect(statusesIn(await answered(path(), head + second))).toHaveLength(1);
  });

  it('processes a second request after a valid request', async () => {
    expect(statusesIn(await answered(path(), second + last))).toHaveLength(2);
  });
});

const healthy = async () => (await agent.call(agent.ops, '/healthz')).status;
