/**
 * A hundred nodes that change ten times per second: compares a node-opcua client with its own subscription, which
 * stores nothing, with the agent and its reader. The node-opcua server limits both, so CPU per value and memory are
 * compared. `node scripts/bench/sources/opcua.ts [--seconds N] [--rounds N]`.
 */
import { type ChildProcess, fork } from 'node:child_process';
import { once } from 'node:events';
import { mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { parseArgs } from 'node:util';
import type { AgentProcess } from '../../../test/e2e/harness/agent-process.ts';
import { cpuSeconds, family, machine, median, table } from '../measure.ts';
import { agentWith, awayPlatform, heldMb, onDisk, pause, until } from '../on-disk.ts';

const NODES = 100;
const EVERY_MS = 100;
/** Time until startup is complete. */
const SETTLE_MS = 10_000;

if (process.argv[2] === 'server') await serve(process.argv[3]!);
else if (process.argv[2] === 'bare') await subscribe(process.argv[3]!);
else await bench();

async function serve(folder: string): Promise<void> {
  const { OPCUACertificateManager } = await import('node-opcua-certificate-manager');
  const { OPCUAServer } = await import('node-opcua-server');
  const { DataType, StatusCodes } = await import('node-opcua-client');
  const manager = new OPCUACertificateManager({ rootFolder: folder, automaticallyAcceptUnknownCertificate: true });
  const server = new OPCUAServer({ port: 0, hostname: '127.0.0.1', serverCertificateManager: manager });
  await server.initialize();
  const own = server.engine.addressSpace!.getOwnNamespace();
  const variables = Array.from({ length: NODES }, (_, at) =>
    own.addVariable({
      browseName: `V${at}`,
      nodeId: `s=V${at}`,
      dataType: 'Double',
      organizedBy: server.engine.addressSpace!.rootFolder.objects,
      minimumSamplingInterval: EVERY_MS,
    } as never),
  );
  let count = 0;
  setInterval(() => {
    count++;
    for (const variable of variables) {
      variable.setValueFromSource({ dataType: DataType.Double, value: count / 8 }, StatusCodes.Good, new Date());
    }
  }, EVERY_MS);
  await server.start();
  process.send!(server.getEndpointUrl());
}

async function subscribe(url: string): Promise<void> {
  const { AttributeIds, ClientMonitoredItem, ClientSubscription, OPCUAClient, TimestampsToReturn } = await import(
    'node-opcua-client'
  );
  const client = OPCUAClient.create({ endpointMustExist: false });
  await client.connect(url);
  const session = await client.createSession();
  const subscription = ClientSubscription.create(session, {
    requestedPublishingInterval: EVERY_MS,
    publishingEnabled: true,
  });
  let taken = 0;
  let sum = 0;
  for (let at = 0; at < NODES; at++) {
    const item = ClientMonitoredItem.create(
      subscription,
      { nodeId: `ns=1;s=V${at}`, attributeId: AttributeIds.Value },
      { samplingInterval: EVERY_MS, queueSize: 100, discardOldest: true },
      TimestampsToReturn.Both,
    );
    item.on('changed', ({ value, sourceTimestamp }) => {
      sum += Number(value.value) + Number(sourceTimestamp);
      taken++;
    });
  }
  process.on('message', () => process.send!(Number.isFinite(sum) ? taken : 0));
  process.send!('subscribed');
}

interface Subscriber {
  name: string;
  start(url: string): Promise<void>;
  pids(): readonly number[];
  taken(): Promise<number>;
  stop(): Promise<void>;
}

async function told(child: ChildProcess): Promise<number> {
  child.send('taken');
  return ((await once(child, 'message')) as [number])[0];
}

async function end(child: ChildProcess): Promise<void> {
  const over = once(child, 'exit');
  child.kill('SIGKILL');
  await over;
}

async function bench(): Promise<void> {
  const { values: options } = parseArgs({
    options: { seconds: { type: 'string', default: '20' }, rounds: { type: 'string', default: '3' } },
  });
  const [seconds, rounds] = [Number(options.seconds), Number(options.rounds)];
  const folder = mkdtempSync(join(tmpdir(), 'tagferry-bench-opcua-'));
  const server = fork(import.meta.filename, ['server', folder], { stdio: ['ignore', 'ignore', 'inherit', 'ipc'] });
  const [url] = (await once(server, 'message')) as [string];
  const sandbox = await awayPlatform();
  let child: ChildProcess;
  let agent: AgentProcess;
  const subscribers: Subscriber[] = [
    {
      name: 'bare client (node-opcua-client)',
      async start(at) {
        child = fork(import.meta.filename, ['bare', at], { stdio: ['ignore', 'ignore', 'inherit', 'ipc'] });
        await once(child, 'message');
      },
      pids: () => [child.pid!],
      taken: () => told(child),
      stop: () => end(child),
    },
    {
      name: 'tagferry and its reader, on disk',
      async start(at) {
        const values = Array.from({ length: NODES }, (_, n) => `      v${n}: { from: cell, node: "ns=1;s=V${n}" }\n`);
        agent = agentWith(
          sandbox,
          `sources: { cell: { opcua: "${at}", security: None, every: ${EVERY_MS}ms } }\n` +
            `tags:\n  T:\n    asset: 881\n    values:\n${values.join('')}`,
        );
        await agent.start();
      },
      pids: () => family(agent.pid),
      taken: () => onDisk(agent),
      stop: () => agent.dispose(),
    },
    {
      name: 'tagferry without a source',
      async start() {
        agent = agentWith(sandbox, 'tags: {}\n');
        await agent.start();
      },
      pids: () => family(agent.pid),
      taken: async () => 0,
      stop: () => agent.dispose(),
    },
  ];
  const found = new Map<string, { rate: number[]; cpu: number[]; held: number[] }>();
  for (let round = 0; round < rounds; round++) {
    for (const subscriber of subscribers) {
      await subscriber.start(url);
      if (subscriber.name !== subscribers[2]!.name) await until(async () => (await subscriber.taken()) > 0);
      await pause(SETTLE_MS);
      const pids = subscriber.pids();
      const [startMs, before, cpu] = [performance.now(), await subscriber.taken(), cpuSeconds(pids)];
      await pause(seconds * 1_000);
      const passed = (performance.now() - startMs) / 1_000;
      const taken = (await subscriber.taken()) - before;
      const all = found.get(subscriber.name) ?? { rate: [], cpu: [], held: [] };
      all.rate.push(taken / passed);
      all.cpu.push((cpuSeconds(pids) - cpu) / passed);
      all.held.push(heldMb(pids));
      found.set(subscriber.name, all);
      await subscriber.stop();
    }
  }
  await sandbox.stop();
  await end(server);
  rmSync(folder, { recursive: true, force: true });
  const rows = [...found].map(([name, { rate, cpu, held }]) => [
    name,
    median(rate).toFixed(0),
    (median(cpu) * 100).toFixed(1),
    median(held).toFixed(0),
  ]);
  const of = (at: number) => median([...found.values()][at]!.cpu);
  console.log(
    `${machine()}\nOPC UA, ${NODES} nodes that change every ${EVERY_MS} ms; ${seconds} s each, medians of ${rounds} rounds, alternating\n`,
  );
  console.log(table(['', 'values/s', '% of a core', 'MB'], rows));
  console.log(`\nCPU compared with the bare client: ${(of(1) / of(0)).toFixed(2)}`);
}
