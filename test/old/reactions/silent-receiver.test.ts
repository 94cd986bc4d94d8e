import { once } from 'node:events';
import { createServer, type Server, type ServerResponse } from 'node:http';
import type { AddressInfo } from 'node:net';
import { join } from 'node:path';
import { afterEach, beforeEach, describe, expect, it } from 'vitest';
import { freePort } from '../../../src/base/port-claim.ts';
import { Sandbox } from '../../../src/sandbox/sandbox.ts';
import { AgentProcess } from '../../e2e/harness/agent-process.ts';
import { deliverEvent } from '../../e2e/harness/delivering.ts';
import { requestBody } from '../../unit/doubles/request-body.ts';
import { wholeLines } from '../../whole-lines.ts';

let sandbox: Sandbox;
let agent: AgentProcess;
let receiver: Server;
/** Requests without a response from the receiver. */
let pending: Set<ServerResponse>;
let mostPending: number;
let received: number[];
let responds: boolean;

beforeEach(async () => {
  pending = new Set();
  mostPending = 0;
  received = [];
  responds = false;
  receiver = createServer(async (request, response) => {
    const text = (await requestBody(request))?.toString();
    if (text === undefined) return;
    if (responds) {
      received.push((JSON.parse(text) as { content: { data: { value: number } } }).content.data.value);
      return void response.writeHead(204).end();
    }
    pending.add(response);
    mostPending = Math.max(mostPending, pending.size);
    response.on('close', () => pending.delete(response));
  }).listen(0, '127.0.0.1');
  await once(receiver, 'listening');
  sandbox = new Sandbox({ limits: { perUser: 0, perApiKey: 0, perAddress: 0 } });
  await sandbox.start();
});
afterEach(async () => {
  await agent.dispose();
  await sandbox.stop();
  receiver.closeAllConnections();
  receiver.close();
});

async function start(timeout: string): Promise<void> {
  const listen = `127.0.0.1:${await freePort()}`;
  agent = new AgentProcess(sandbox.url);
  agent.write(sandbox.url, {
    tags: 'tags:\n  FT-101: { asset: 881, instrumentation: 4711, values: { flow: { unit: 12 } } }\n',
    reactions: `reactions:
  - name: notify
    on: threshold_reached
    if: { data.key: [notify, both] }
    do: [{ post: "http://127.0.0.1:${(receiver.address() as AddressInfo).port}/", timeout: ${timeout} }]
  - name: alarm
    on: threshold_reached
    if: { data.key: [alarm, both] }
    do: [{ run: [/bin/sh, -c, 'echo "$TAGFERRY_VALUE" >> ${join(agent.folder, 'ran')}'] }]
`,
    env: { WEBHOOK_LISTEN: listen, WEBHOOK_URL: `http://${listen}/hook` },
  });
  await agent.start();
  await agent.registered();
}

const deliver = async (key: string, values: number[], instrumentationOf: (value: number) => number) => {
  for (const value of values) {
    expect(await deliverEvent(sandbox, { key, value, instrumentation: instrumentationOf(value) })).toBe(204);
  }
};
const numbers = (from: number, count: number) => Array.from({ length: count }, (_, i) => from + i);
const alarms = () => wholeLines(join(agent.folder, 'ran')).map(Number);

describe('unresponsive receiver', () => {
  it('does not delay other rules or other reactions to the same events', async () => {
    await start('10m');
    await deliver('notify', numbers(0, 40), (value) => 5_000 + value);
    await agent.until(() => pending.size === 4, 'the rule uses all of its slots');
    await deliver('alarm', numbers(100, 5), (value) => 5_000 + value);
    await deliver('both', numbers(200, 5), () => 4711);
    await agent.until(() => alarms().length === 10, 'every alarm has run');
    expect(alarms().slice(-5)).toEqual(numbers(200, 5));
    expect(mostPending).toBe(4);
  });

  it('is reported, receives one request at a time, and receives all events after recovery', async () => {
    await start('1s');
    await deliver('both', numbers(0, 20), (value) => 5_000 + value);
    await agent.until(() => agent.logged('reaction.target_silent').length === 1, 'the target is reported');
    await agent.until(() => alarms().length === 20, 'every alarm has run');
    await agent.until(() => pending.size <= 1, 'the first requests have timed out');
    mostPending = 0;
    const target = `post http://127.0.0.1:${(receiver.address() as AddressInfo).port}`;
    expect(await agent.status()).toMatchObject({ silent_targets: [{ target, reactions: ['notify'] }] });
    const { notes } = JSON.parse((await agent.call(agent.ops, '/healthz')).text) as { notes: string[] };
    expect(notes.join()).toContain(target);
    await agent.until(
      async () => (await agent.metric('tagferry_reaction_target_silent_seconds')) > 0,
      'the metric counts the time',
    );
    await deliver('both', [100], () => 4711);
    await agent.until(() => alarms().includes(100), 'a new alarm has run');
    expect(mostPending).toBeLessThanOrEqual(1);
    responds = true;
    await agent.until(() => new Set(received).size === 21, 'the receiver has every event', 90_000);
    expect(agent.logged('reaction.target_restored')).toMatchObject([{ target }]);
    expect(await agent.status()).toMatchObject({ silent_targets: [] });
    expect(received.toSorted((a, b) => a - b)).toEqual([...numbers(0, 20), 100]);
  }, 180_000);
});
