import { connect, type Socket } from 'node:net';
import { afterEach, beforeEach, expect, it } from 'vitest';
import { Sandbox } from '../../src/sandbox/sandbox.ts';
import { GatewayProcess } from './gateway-process.ts';

const VALUES = 10_000;
/** As many as the stream takes. */
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
  // Fails where the kernel has ended it for memory.
  await gateway.dispose();
  await sandbox.stop();
});

it('viewers who read nothing of ten thousand values that change each second do not cost a gateway its memory', async () => {
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
  // Who watches the gateway by the same listener finds a place, and sees it work on.
  const ingested = async () => {
    const text = await (await fetch(`http://127.0.0.1:${port}/metrics`)).text();
    const lines = text.split('\n').filter((line) => line.startsWith('tagferry_values_ingested_total'));
    return lines.reduce((sum, line) => sum + Number(line.slice(line.lastIndexOf(' ') + 1)), 0);
  };
  await gateway.until(async () => (await ingested()) > 15 * VALUES, 'every value has changed a dozen times', 120_000);
  for (const socket of sockets) socket.destroy();
  await gateway.until(() => ended === VIEWERS, 'they have gone');
  await sandbox.goOnline();
  gateway.signal('SIGHUP');
  await gateway.until(() => sandbox.values.counts(881).stored === pushes, 'what was taken in is on the platform');
}, 300_000);
