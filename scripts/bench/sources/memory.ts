/**
 * Memory of each source kind: the agent with one connected, idle source and its programs, compared with the agent
 * without sources. `node scripts/bench/sources/memory.ts [--rounds N] [--only kind]`. The agent is a built program,
 * with the flags of the package.
 */
import { mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import type { Server } from 'node:net';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { parseArgs } from 'node:util';
import { Mosquitto } from '../../../test/e2e/harness/mosquitto.ts';
import { NatsServers } from '../../../test/e2e/harness/nats-servers.ts';
import { OpcuaServer } from '../../../test/e2e/harness/opcua-server.ts';
import { asPackaged } from '../../../test/host/packaged.ts';
import { family, machine, median, table } from '../measure.ts';
import { agentWith, awayPlatform, heldMb, pause } from '../on-disk.ts';
import { modbusDevice } from './modbus-device.ts';

const { values: options } = parseArgs({
  options: { rounds: { type: 'string', default: '3' }, only: { type: 'string' } },
});
const ROUNDS = Number(options.rounds);
/** Time until modules are loaded and garbage is collected. */
const SETTLE_MS = 15_000;

/** Starts a Modbus device. */
async function listeningDevice(): Promise<Server> {
  const server = modbusDevice();
  await new Promise<void>((resolve) => server.listen(0, '127.0.0.1', resolve));
  return server;
}

const folder = mkdtempSync(join(tmpdir(), 'tagferry-bench-memory-'));
const mosquitto = await Mosquitto.make();
await mosquitto.start();
const nats = await NatsServers.make();
await nats.start();
await (await nats.manager()).streams.add({ name: 'PLANT', subjects: ['site.>'] });
const opcua = new OpcuaServer();
await opcua.start();
const device = await listeningDevice();
const { port } = device.address() as { port: number };
const program = join(folder, 'program');
writeFileSync(program, '#!/bin/sh\nexec sleep 86400\n', { mode: 0o755 });
writeFileSync(join(folder, 'a.log'), 'time,v\n');

const KINDS: Readonly<Record<string, readonly [source: string, value: string]>> = {
  none: ['', ''],
  simulate: ['simulate: true, every: 1s', 'shape: sine'],
  host: ['host: true, every: 1s', 'reading: load1'],
  modbus: [`modbus: "tcp://127.0.0.1:${port}", every: 1s`, 'register: holding 1'],
  mqtt: [`mqtt: "mqtt://127.0.0.1:${mosquitto.port}"`, 'topic: site/v'],
  sparkplug: [`sparkplug: "mqtt://127.0.0.1:${mosquitto.port}"`, 'metric: press-4/Pressure'],
  nats: [`nats: "${nats.url}", stream: PLANT`, 'subject: site.v'],
  csv: [`csv: ${folder}, pattern: "*.log", tail: true, time_column: time`, 'column: v'],
  exec: [`exec: [${program}]`, ''],
  opcua: [`opcua: "${opcua.url}", security: None`, 'node: "ns=1;s=Line1.Name"'],
};

const { flags, variables } = asPackaged();
const sandbox = await awayPlatform();
const held = new Map<string, number[]>();
for (let round = 0; round < ROUNDS; round++) {
  for (const [kind, [source, value]] of Object.entries(KINDS)) {
    if (options.only !== undefined && kind !== 'none' && kind !== options.only) continue;
    const from = value === '' ? '{ from: it }' : `{ from: it, ${value} }`;
    const tags = `tags: { T: { asset: 881, values: { v: ${source === '' ? '{}' : from} } } }\n`;
    const agent = agentWith(sandbox, source === '' ? tags : `sources: { it: { ${source} } }\n${tags}`);
    agent.flags = flags;
    await agent.start(variables);
    await pause(SETTLE_MS);
    held.set(kind, [...(held.get(kind) ?? []), heldMb(family(agent.pid))]);
    await agent.dispose();
  }
}
await sandbox.stop();
await Promise.all([mosquitto.dispose(), nats.dispose(), opcua.dispose()]);
device.close();
rmSync(folder, { recursive: true });
const none = median(held.get('none')!);
const rows = [...held].map(([kind, all]) => {
  const mb = median(all);
  return [
    kind,
    mb.toFixed(1),
    kind === 'none' ? '' : `${mb < none ? '' : '+'}${(mb - none).toFixed(1)}`,
    (mb / none).toFixed(2),
  ];
});
console.log(
  `${machine()}\nMemory (PSS) of the agent and its programs, one idle source with one value; medians of ${ROUNDS} rounds\n`,
);
console.log(table(['source', 'MB', 'vs. none', 'ratio'], rows));
process.exit();
