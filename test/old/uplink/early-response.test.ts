import { once } from 'node:events';
import { type AddressInfo, connect, createServer, type Server, type Socket } from 'node:net';
import { afterEach, beforeEach, describe, expect, it } from 'vitest';
import { Sandbox } from '../../../src/sandbox/sandbox.ts';
import { GatewayProcess } from '../agent/gateway-process.ts';
import { runVerb } from '../commands/verb-run.ts';

const TAGS = 'tags:\n  T-881: { asset: 881, values: { flow: {} } }\n';
const VALUES = 20_000;
const PER_PUSH = 5_000;

let sandbox: Sandbox;
let proxy: Server;
let agent: GatewayProcess;
let discardsPosts: boolean;
let discarded: number;
let delayMs: number;
let hangsUp: boolean;
const sockets = new Set<Socket>();

/**
 * Forwards a connection. While `discardsPosts` is set, responds 204 to a post of values that is incomplete after
 * `delayMs`.
 */
function serve(socket: Socket): void {
  const onward = connect(Number(new URL(sandbox.url).port), '127.0.0.1');
  for (const one of [socket, onward]) {
    sockets.add(one);
    one.on('error', () => {}).on('close', () => sockets.delete(one));
  }
  onward.on('data', (chunk) => void socket.write(chunk)).on('close', () => socket.destroy());
  socket.on('close', () => onward.destroy());
  let received: Buffer | undefined;
  const decide = () => {
    const post = received!.toString('latin1');
    const bodyBytes = post.length - (post.indexOf('\r\n\r\n') + 4);
    if (bodyBytes >= Number(/^content-length: (\d+)/im.exec(post)?.[1])) {
      onward.write(received!);
      received = undefined;
      return;
    }
    discarded++;
    socket.write('HTTP/1.1 204 No Content\r\n\r\n', () => hangsUp && socket.destroy());
  };
  socket.on('data', (chunk: Buffer) => {
    if (received) {
      received = Buffer.concat([received, chunk]);
      return;
    }
    const isPost = /^POST \S+\/values /.test(chunk.subarray(0, 200).toString('latin1'));
    if (!isPost || !discardsPosts) return void onward.write(chunk);
    received = chunk;
    setTimeout(decide, delayMs);
  });
}

beforeEach(async () => {
  [discardsPosts, discarded] = [true, 0];
  sandbox = new Sandbox({ limits: { perUser: 0, perApiKey: 0, perAddress: 0 } });
  await sandbox.start();
  proxy = createServer(serve).listen(0, '127.0.0.1');
  await once(proxy, 'listening');
  agent = new GatewayProcess(`http://127.0.0.1:${(proxy.address() as AddressInfo).port}`, { tags: TAGS });
  await agent.start();
});
afterEach(async () => {
  await agent.dispose();
  for (const socket of sockets) socket.destroy();
  proxy.close();
  await sandbox.stop();
});

describe('proxy that responds 204 to an incomplete post', () => {
  it.each([
    ['immediately and closes the connection', 0, true],
    ['after 50 ms and closes the connection', 50, true],
    ['after 50 ms and keeps the connection open', 50, false],
    ['after 200 ms and closes the connection', 200, true],
    ['after 200 ms and keeps the connection open', 200, false],
  ])('causes no value loss if it responds %s', async (_name, ms, closes) => {
    [delayMs, hangsUp] = [ms, closes];
    for (let sent = 0; sent < VALUES; sent += PER_PUSH) {
      const values = Array.from({ length: PER_PUSH }, (_, at) => ({
        tag: 'T-881',
        key: 'flow',
        value: sent + at,
        timestamp: 1_700_000_000_000 + sent + at,
      }));
      expect((await agent.push(values)).status).toBe(204);
    }
    await agent.until(() => agent.logged('uplink.away').length > 0 && discarded > 1, 'posts are discarded');
    expect(agent.logged('uplink.away').at(-1)).toMatchObject({ code: 'platform.body_unread' });
    const delivered = await agent.metric('tagferry_values_delivered_total');
    // A post that was complete in time, for example on a stalled machine, has reached the platform.
    expect(delivered).toBeLessThanOrEqual(sandbox.values.counts().stored);
    discardsPosts = false;
    await runVerb(['session', 'renew', '--config', agent.config]);
    await agent.until(() => sandbox.values.counts().stored === VALUES, 'every value is stored by the platform');
    expect(agent.logged('uplink.quarantined')).toEqual([]);
  });
});
