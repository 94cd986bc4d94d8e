import { connect, type Socket } from 'node:net';
import { afterEach, beforeEach, expect, it } from 'vitest';
import { Sandbox } from '../../../src/sandbox/sandbox.ts';
import { GatewayProcess } from '../../host/gateway-process.ts';

const VALUES = 10_000;
/** Maximum number of stream connections. */
const VIEWERS = 40;

let sandbox: Sandbox;
let gateway: GatewayProcess;

beforeEach(async () => {
  sandbox = new Sandbox({ limits: { perUser: 0, perApiKey: 0, perAddress: 0 } });
  await sandbox.start();
  const lines = Array.from(
    { length: VALUES },
    (_, i) =>
      `  T-${i}: { asset: ${882 + (i % 4)}, values: { v${i}: { from: sim, shape: noise, low: 0, high: 9, unit: 1 } } }\n`,
  );
  const tags = `sources: { sim: { simulate: true, every: 1s } }\ntags:\n${lines.join('')}`;
  gateway = new GatewayProcess(sandbox.url, { tags, env: { OPS_LISTEN: '127.0.0.1:0' } });
});
afterEach(async () => {
  // Fails if the kernel has killed the agent for exceeding the memory limit.
  await gateway.dispose();
  await sandbox.stop();
});

it('viewers that stop reading ten thousand values per second do not exhaust gateway memory', async () => {
  await sandbox.goOffline('refuse');
  await gateway.start();
  const port = Number(/:(\d+)$/.exec(String(gateway.logged('ops.listening').at(-1)!.address))![1]);
  const sockets: Socket[] = [];
  let ended = 0;
  for (let i = 0; i < VIEWERS; i++) {
    const socket = connect(port, '127.0.0.1').pause();
    socket.on('error', () => {}).on('close', () => ended++);
    socket.write('GET /live/stream?of=now,history,tags HTTP/1.1\r\nHost: localhost\r\n\r\n');
    sockets.push(socket);
  }
  const pushes = 40;
  for (let i = 0; i < pushes; i++) {
    const { status } = await gateway.push([{ asset: 881, key: 'flow', value: i }]);
    expect(status).toBe(204);
  }
  // Another client of the same listener can connect and observe the gateway.
  const ingested = async () => {
    const text = await (await fetch(`http://127.0.0.1:${port}/metrics`)).text();
    const lines = text.split('\n').filter((line) => line.startsWith('tagferry_values_ingested_total'));
    return lines.reduce((sum, line) => sum + Number(line.slice(line.lastIndexOf(' ') + 1)), 0);
  };
  await gateway.until(async () => (await ingested()) > 15 * VALUES, 'every value has changed a dozen times', 120_000);
  for (const socket of sockets) socket.destroy();
  await gateway.until(() => ended === VIEWERS, 'the viewers are disconnected');
  await sandbox.goOnline();
  gateway.signal('SIGHUP');
  await gateway.until(() => sandbox.values.counts(881).stored === pushes, 'the accepted values are on the platform');
}, 300_000);
