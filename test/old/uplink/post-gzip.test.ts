import { once } from 'node:events';
import { createServer, request, type Server } from 'node:http';
import type { AddressInfo } from 'node:net';
import { afterEach, beforeEach, expect, it } from 'vitest';
import { Sandbox } from '../../../src/sandbox/sandbox.ts';
import { AgentProcess } from '../../e2e/harness/agent-process.ts';

let sandbox: Sandbox;
let between: Server;
let agent: AgentProcess | undefined;
/** `Content-Encoding` of each observed post of values; `none` if absent. */
let encodings: string[];

/** Proxy to the sandbox that records the agent's headers. */
beforeEach(async () => {
  encodings = [];
  sandbox = new Sandbox({ limits: { perUser: 0, perApiKey: 0, perAddress: 0 } });
  await sandbox.start();
  between = createServer((incoming, response) => {
    const { method, headers, url } = incoming;
    if (method === 'POST' && url?.endsWith('/values')) encodings.push(headers['content-encoding'] ?? 'none');
    const onward = request(new URL(url ?? '/', sandbox.url), { method: method ?? 'GET', headers }, (answer) => {
      response.writeHead(answer.statusCode ?? 502, answer.headers);
      answer.pipe(response);
    });
    onward.on('error', () => response.destroy());
    incoming.pipe(onward);
  });
  between.listen(0, '127.0.0.1');
  await once(between, 'listening');
});
afterEach(async () => {
  await agent?.dispose();
  between.closeAllConnections();
  between.close();
  await sandbox.stop();
});

it.each([
  ['uncompressed if POST_GZIP is not set', {}, 'none'],
  ['uncompressed if POST_GZIP is false', { POST_GZIP: 'false' }, 'none'],
  ['gzipped if POST_GZIP is true', { POST_GZIP: 'true' }, 'gzip'],
])('the agent posts values %s, and the platform decodes them', async (_name, env, encoding) => {
  const { port } = between.address() as AddressInfo;
  const tags = 'tags:\n  FT: { asset: 881, values: { flow: { unit: 12 } } }\n';
  agent = new AgentProcess(`http://127.0.0.1:${port}`, { env, tags });
  await agent.start();
  const sent = [1, 2, 3].map((value) => ({ timestampMs: 1_700_000_000_000 + value, value }));
  const pushed = await agent.push(
    sent.map(({ timestampMs, value }) => ({ tag: 'FT', key: 'flow', value, timestamp: timestampMs })),
  );
  expect(pushed.status).toBe(204);
  await agent.until(() => sandbox.values.counts(881, 'flow').stored === sent.length, 'the values have arrived');
  expect(sandbox.values.compare(881, 'flow', sent)).toMatchObject({ missing: [], invented: [], different: [] });
  expect(new Set(encodings)).toEqual(new Set([encoding]));
});
