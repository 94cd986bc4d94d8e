import { once } from 'node:events';
import type { AddressInfo } from 'node:net';
import { createServer, type Server } from 'node:net';
import { join } from 'node:path';
import { afterEach, beforeEach, describe, expect, it } from 'vitest';
import { freePort } from '../../../src/base/port-claim.ts';
import { Sandbox } from '../../../src/sandbox/sandbox.ts';
import { deliverEvent } from '../../e2e/harness/delivering.ts';
import { GatewayProcess } from '../../host/gateway-process.ts';
import { wholeLines } from '../../whole-lines.ts';

let sandbox: Sandbox;
/** `dispose` throws if the kernel killed the agent for exceeding the memory limit. */
let gateway: GatewayProcess;
let receiver: Server;
let connections: number;

beforeEach(async () => {
  sandbox = new Sandbox({ limits: { perUser: 0, perApiKey: 0, perAddress: 0 } });
  await sandbox.start();
  // Accepts requests and never responds.
  connections = 0;
  receiver = createServer((socket) => {
    connections++;
    socket.on('error', () => {}).resume();
  }).listen(0, '127.0.0.1');
  await once(receiver, 'listening');
  const listen = `127.0.0.1:${await freePort()}`;
  gateway = new GatewayProcess(sandbox.url);
  const url = `http://127.0.0.1:${(receiver.address() as AddressInfo).port}`;
  const post = `{ post: "${url}/", timeout: 3s }`;
  const holders = Array.from(
    { length: 8 },
    (_, i) => `  - { name: hold-${i}, on: threshold_reached, if: { data.key: hold-${i} }, do: [${post}] }\n`,
  );
  gateway.write(sandbox.url, {
    tags: 'tags:\n  FT-101: { asset: 881, instrumentation: 4711, values: { flow: { unit: 12 } } }\n',
    reactions: `reactions:\n${holders.join('')}  - name: silent
    on: threshold_reached
    if: { data.key: silent }
    do: [{ post: "${url}/silent", timeout: 10m }]
  - name: alarm
    on: threshold_reached
    if: { data.key: alarm }
    do: [{ run: [/bin/sh, -c, 'echo "$TAGFERRY_VALUE" >> ${join(gateway.folder, 'ran')}'] }]
`,
    env: { WEBHOOK_LISTEN: listen, WEBHOOK_URL: `http://${listen}/hook` },
  });
  await gateway.start();
  await gateway.registered();
});
afterEach(async () => {
  await gateway.dispose();
  await sandbox.stop();
  receiver.close();
});

let serial = 0;
const deliver = async (key: string, content: object) => {
  const value = ++serial;
  const status = await deliverEvent(sandbox, { key, value, instrumentation: 5_000 + value, content });
  expect(status).toBe(204);
  return value;
};
const EMPTY_OBJECTS = Array.from({ length: 340_000 }, () => ({}));
const LONG_TEXT = 'ä'.repeat(500_000);
const alarms = () => wholeLines(join(gateway.folder, 'ran')).map(Number);

describe('1 MB events under the shipped memory limits', () => {
  it('leave memory for other events while a receiver does not respond', async () => {
    const text = { text: 'x'.repeat(1_000_000) };
    for (let n = 0; n < 6; n++) await deliver('silent', text);
    await gateway.until(() => connections > 0, 'the receiver has a request');
    const value = await deliver('alarm', text);
    await gateway.until(() => alarms().includes(value), 'the alarm has run');
  });

  it('do not crash the agent, prevent its next startup or delay alarms', async () => {
    for (let i = 0; i < 12; i++) await deliver(`hold-${i % 8}`, { filling: EMPTY_OBJECTS });
    for (let i = 0; i < 48; i++) await deliver(`hold-${i % 8}`, { filling: LONG_TEXT });
    // Number of values in a 480 kB post.
    const data = Array.from({ length: 12_000 }, (_, i) => ({
      timestamp: '2026-11-21T00:00:00.000Z',
      value: String(i),
    }));
    for (let i = 0; i < 4; i++) await deliver(`hold-${i}`, { values: [{ key: 'flow', data }] });
    const first = await deliver('alarm', { values: [{ key: 'flow', data }] });
    await gateway.until(() => alarms().includes(first), 'the alarm has run');
    await gateway.end('SIGKILL');
    await gateway.start();
    const second = await deliver('alarm', { filling: LONG_TEXT });
    await gateway.until(() => alarms().includes(second), 'the alarm has run after a restart', 60_000);
    const control = join(gateway.state, 'control.sock');
    const { text } = await gateway.call(control, '/events/ls', { body: '{"limit":1000}' });
    const { events } = JSON.parse(text) as { events: { unrecognised: boolean }[] };
    expect(events.filter(({ unrecognised }) => !unrecognised)).toHaveLength(54);
    expect(events.filter(({ unrecognised }) => unrecognised)).toHaveLength(12);
  }, 300_000);
});
