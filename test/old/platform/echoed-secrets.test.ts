import { once } from 'node:events';
import { writeFileSync } from 'node:fs';
import type { IncomingMessage, ServerResponse } from 'node:http';
import { type AddressInfo, createServer } from 'node:net';
import { join } from 'node:path';
import { afterEach, beforeEach, describe, expect, it } from 'vitest';
import { SANDBOX_CREDENTIALS, Sandbox } from '../../../src/sandbox/sandbox.ts';
import { AgentProcess } from '../../e2e/harness/agent-process.ts';
import { runVerb } from '../commands/verb-run.ts';
import { Portal } from '../uplink/portal.ts';

const TAGS = 'tags:\n  T-1: { asset: 881, values: { flow: {} } }\n';
const PASSWORD = 'p&ss wörd+/="1"';
const JSON_TYPE = { 'content-type': 'application/json' };

let sandbox: Sandbox;
let portal: Portal;
let agent: AgentProcess;

beforeEach(async () => {
  sandbox = new Sandbox({ limits: { perUser: 0, perApiKey: 0, perAddress: 0 } });
  await sandbox.start();
  portal = new Portal(sandbox.url);
  await portal.start();
  agent = new AgentProcess(portal.url, { tags: TAGS, env: { LOG_LEVEL: 'trace' } });
});
afterEach(async () => {
  await agent.dispose();
  await portal.stop();
  await sandbox.stop();
});

/** Everything that is visible to an operator. */
async function shown(): Promise<string> {
  const pages = await Promise.all(
    ['/status', '/healthz', '/metrics'].map((path) => agent.call(agent.ops, path).then(({ text }) => text)),
  );
  const verbs = [];
  for (const verb of [['status'], ['session', 'show']]) {
    const { stdout, stderr } = await runVerb([...verb, '--config', agent.config]);
    verbs.push(stdout, stderr);
  }
  return [agent.output, ...pages, ...verbs].join('\n');
}

type Echo = (response: ServerResponse, token: string) => void;
const ECHOES: [string, Echo][] = [
  ['an error body', (response, token) => end(response, 400, error(`token ${token} is wrong`))],
  ['a truncated token', (response, token) => end(response, 503, error(`token ${token.slice(0, 24)}`))],
  ['a debug page', (response, token) => end(response, 500, `<pre>${'.'.repeat(250)} Authorization: Bearer ${token}`)],
  [
    'a success with a body',
    (response, token) => end(response, 200, `{"echo":"${Buffer.from(token).toString('base64')}"}`),
  ],
  ['a redirect', (response, token) => void response.writeHead(302, { location: `http://other/${token}/x` }).end()],
  ['a rejection', (response, token) => end(response, 403, error(`no access with ${encodeURIComponent(token)}`))],
];

function end(response: ServerResponse, status: number, body: string): void {
  response.writeHead(status, JSON_TYPE).end(body);
}

function error(message: string): string {
  return JSON.stringify({ errors: [{ type: 'invalid', message, attribute: message }] });
}

const tokenOf = (request: IncomingMessage) => request.headers.authorization?.replace(/^Bearer /, '') ?? '';

describe('agent with a server that echoes secrets', () => {
  it.each(ECHOES)('does not reveal an access token after %s', async (_name, echo) => {
    await agent.start();
    await agent.until(() => agent.logged('session.valid').length > 0, 'a session');
    const tokens = new Set<string>();
    portal.answer = (request, response) => {
      tokens.add(tokenOf(request));
      echo(response, tokenOf(request));
    };
    const timestamp = Date.now();
    await agent.push([{ tag: 'T-1', key: 'flow', value: 1, timestamp }]);
    await agent.until(
      () => agent.logged('uplink.later').length > 0 || agent.logged('uplink.quarantined').length > 0,
      'a response is received',
    );
    const text = await shown();
    expect(tokens.size).toBeGreaterThan(0);
    for (const token of tokens)
      for (const form of [token.slice(0, 20), base64(token)]) expect(text).not.toContain(form);
  });

  it('does not reveal a password or client secret from a sign-in response', async () => {
    const env = { LOG_LEVEL: 'trace', TECHNICAL_PASSWORD: `'${PASSWORD}'` };
    agent.write(portal.url, { tags: TAGS, env });
    portal.answer = (request, response, body) => {
      const basic = request.headers.authorization ?? '';
      const words = `${basic} ${body.replaceAll('%', '%25')} ${body} ${JSON.stringify(new URLSearchParams(body).get('password'))}`;
      end(response, 401, JSON.stringify({ error: 'invalid_grant', error_description: words.slice(-180) }));
    };
    agent.launch();
    await agent.until(() => agent.output.includes('invalid_grant: '), 'the response is in the log');
    await agent.until(() => agent.hasBeenReady, 'ready');
    const text = await shown();
    expect(text).toContain('***');
    for (const form of [
      PASSWORD,
      encodeURIComponent(PASSWORD),
      new URLSearchParams({ p: PASSWORD }).toString().slice(2),
    ]) {
      expect(text).not.toContain(form);
      expect(text).not.toContain(form.slice(0, 8));
    }
    expect(text).not.toContain(base64(SANDBOX_CREDENTIALS.clientSecret).slice(4, 12));
  });

  it.each([
    ['the password file of a NATS source', 'nats://', 'username: plant, password_file: nats.pass'],
    ['the address of a NATS source', 'nats://plant:from-the-file@', 'username: plant'],
  ])('reveals no password from %s', async (_name, start, members) => {
    const sent: string[] = [];
    const server = createServer((socket) => {
      socket.on('error', () => {});
      socket.write('INFO {"server_id":"S","version":"2.11.0","max_payload":1048576}\r\n');
      socket.on('data', (bytes) => {
        const connect = /CONNECT (\{.*\})/.exec(bytes.toString())?.[1];
        if (connect === undefined) return;
        const { pass } = JSON.parse(connect) as { pass: string };
        sent.push(pass);
        socket.end(`-ERR 'unexpected login ${pass} ${Buffer.from(pass).toString('base64')}'\r\n`);
      });
    });
    server.listen(0, '127.0.0.1');
    await once(server, 'listening');
    try {
      const url = `${start}127.0.0.1:${(server.address() as AddressInfo).port}`;
      writeFileSync(join(agent.config, 'nats.pass'), 'from-the-file\n');
      const tags = `sources:\n  line: { nats: "${url}", ${members} }\ntags:\n  T-1: { asset: 881, values: { flow: { from: line, subject: a.b } } }\n`;
      agent.write(portal.url, { tags, env: { LOG_LEVEL: 'trace' } });
      await agent.start();
      await agent.until(() => agent.output.includes('unexpected login'), 'the server error is in the log');
      const text = await shown();
      expect(sent).toContain('from-the-file');
      expect(text).toContain('unexpected login ***');
      for (const form of ['from-the-file', base64('from-the-file').slice(0, 12)]) expect(text).not.toContain(form);
    } finally {
      server.close();
    }
  });
});

function base64(text: string): string {
  return Buffer.from(text).toString('base64').slice(0, 24);
}
