import { mkdtempSync, rmSync } from 'node:fs';
import { createServer as createWebServer } from 'node:http';
import { type AddressInfo, createServer, type Server } from 'node:net';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { freePort } from '../../../src/base/port-claim.ts';
import { problemOf } from '../../../src/opcua/problems.ts';
import type { Endpoint } from '../../../src/opcua/protocol.ts';
import { inspect, Session } from '../../../src/opcua/session.ts';

let folder: string;
const servers: Server[] = [];

beforeAll(() => {
  folder = mkdtempSync(join(tmpdir(), 'tagferry-opcua-problems-'));
});
afterAll(() => {
  for (const server of servers) server.close();
  rmSync(folder, { recursive: true, force: true });
});

async function listen(server: Server): Promise<number> {
  servers.push(server);
  await new Promise<void>((resolve) => server.listen(0, '127.0.0.1', resolve));
  return (server.address() as AddressInfo).port;
}

const endpointAt = (url: string): Endpoint => ({
  url,
  policy: 'None',
  mode: 'None',
  identity: { folder },
  trustFolder: folder,
});

async function problemAt(url: string) {
  const endpoint = endpointAt(url);
  return await Session.open(endpoint).then(
    () => undefined,
    (error: unknown) => problemOf(error, endpoint),
  );
}

describe('OPC UA connection error message', () => {
  it('names an address on which no server is listening', async () => {
    const port = await freePort();
    const url = `opc.tcp://127.0.0.1:${port}`;
    const problem = `127.0.0.1:${port} refused the connection`;
    expect(await problemAt(url)).toMatchObject({ problem, hint: expect.stringContaining('firewall') });
    const inspected = await inspect({ url, identity: { folder } }).catch((error: unknown) => error);
    expect(problemOf(inspected, { url }).problem).toBe(problem);
  });

  it('names a host that cannot be resolved', async () => {
    expect(await problemAt('opc.tcp://plc.invalid:4840')).toMatchObject({
      problem: 'cannot resolve host name plc.invalid',
    });
  });

  it('names an address on which a different kind of server responds', async () => {
    const port = await listen(createWebServer((_, response) => response.end('no')));
    expect(await problemAt(`opc.tcp://127.0.0.1:${port}`)).toMatchObject({
      problem: `127.0.0.1:${port} is not an OPC UA server`,
    });
  });

  it('names an address whose server closes the connection', async () => {
    const port = await listen(createServer((socket) => socket.destroy()));
    expect(await problemAt(`opc.tcp://127.0.0.1:${port}`)).toMatchObject({
      problem: `127.0.0.1:${port} closed the connection`,
    });
  });

  it.each([
    ['BadIdentityTokenRejected (0x80210000)', 'the server rejected the user (BadIdentityTokenRejected)'],
    ['Cannot find ANONYMOUS user token policy in end point description', 'the server does not accept anonymous users'],
    ['cannot find endpoint for securityMode=Sign', 'the server does not support security: Basic256Sha256, mode: Sign'],
    [
      'BadCertificateUntrusted (0x801a0000)',
      "the server does not trust this gateway's certificate (BadCertificateUntrusted)",
    ],
    ['serviceResult = BadSessionIdInvalid (0x80250000)', 'the server closed the session (BadSessionIdInvalid)'],
    ['the subscription was closed (BadTimeout)', 'the server closed the subscription (BadTimeout)'],
    ['serviceResult = BadUnexpectedError (0x80010000)', 'the server rejected a request (BadUnexpectedError)'],
    ['Connection Break', 'plc:4840 closed the connection'],
    ['Secure Channel Closed', 'plc:4840 closed the connection'],
    ['Channel1 not found in the path Channel1/Pump', 'Channel1 not found in the path Channel1/Pump'],
    ['something else', 'something else'],
  ])('describes "%s"', (text, problem) => {
    const endpoint: Endpoint = { ...endpointAt('opc.tcp://plc'), policy: 'Basic256Sha256', mode: 'Sign' };
    expect(problemOf(new Error(text), endpoint).problem).toBe(problem);
  });
});
