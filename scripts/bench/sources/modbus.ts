/**
 * Reads of 100 registers over one connection: compares bare modbus-serial with the agent's path (queue, plan, decoder,
 * gate, one commit per read) into a sink that stores nothing. The device is a separate process. Rounds alternate.
 */
import { fork } from 'node:child_process';
import { once } from 'node:events';
import modbus from 'modbus-serial';
import { systemClock } from '../../../src/base/clock.ts';
import { silentLogger } from '../../../src/base/logger.ts';
import type { Supply } from '../../../src/buffer/client/committer.ts';
import { UNSHAPED } from '../../../src/config/tags.ts';
import { Gate } from '../../../src/sources/intake/gate.ts';
import { Stamps } from '../../../src/sources/intake/stamps.ts';
import { TroubleLog } from '../../../src/sources/intake/trouble-log.ts';
import { BlockReader } from '../../../src/sources/modbus/block-reader.ts';
import { readRequest } from '../../../src/sources/modbus/frames.ts';
import { ModbusLine } from '../../../src/sources/modbus/line.ts';
import type { ModbusSpec } from '../../../src/sources/modbus/line-spec.ts';
import type { ModbusRegister, Span } from '../../../src/sources/modbus/register.ts';
import { SourceStatus } from '../../../src/sources/status.ts';
import { type Cost, costOf, machine, median, table } from '../measure.ts';
import { modbusDevice } from './modbus-device.ts';

const REGISTERS = 100;
const READS = 3_000;
const ROUNDS = 5;

if (process.argv[2] === 'device') device();
else await bench();

/** Runs the device in this process. */
function device(): void {
  const server = modbusDevice();
  server.listen(0, '127.0.0.1', () => process.send!((server.address() as { port: number }).port));
}

async function bench(): Promise<void> {
  const child = fork(import.meta.filename, ['device']);
  const [port] = (await once(child, 'message')) as [number];
  const bare = await bareReader(port);
  const own = await ownReader(port);
  const costs: Record<'bare' | 'own', Cost[]> = { bare: [], own: [] };
  for (let round = 0; round <= ROUNDS; round++) {
    for (const [name, read] of [
      ['bare', bare],
      ['own', own],
    ] as const) {
      const cost = await costOf(async () => {
        for (let at = 0; at < READS; at++) await read();
      });
      // The first round is a warm-up.
      if (round > 0) costs[name].push(cost);
    }
  }
  const of = (name: 'bare' | 'own') => ({
    rate: median(costs[name].map(({ seconds }) => READS / seconds)),
    cpu: median(costs[name].map(({ cpuSeconds }) => (cpuSeconds / READS) * 1e6)),
  });
  const rows = (['bare', 'own'] as const).map((name) => {
    const { rate, cpu } = of(name);
    const words = name === 'bare' ? 'modbus-serial' : 'tagferry, up to the gate';
    return [words, rate.toFixed(0), ((rate * REGISTERS) / 1e3).toFixed(0), cpu.toFixed(0)];
  });
  console.log(`${machine()}\n${READS} reads of ${REGISTERS} registers, medians of ${ROUNDS} rounds\n`);
  console.log(table(['', 'reads/s', 'thousand values/s', 'CPU µs per read'], rows));
  console.log(`\nratio of the rates: ${(of('own').rate / of('bare').rate).toFixed(2)}`);
  child.kill();
  process.exit();
}

async function bareReader(port: number): Promise<() => Promise<unknown>> {
  const client = new modbus.default();
  await client.connectTCP('127.0.0.1', { port });
  client.setTimeout(3_000);
  client.setID(1);
  return () => client.readHoldingRegisters(0, REGISTERS);
}

async function ownReader(port: number): Promise<() => Promise<unknown>> {
  const [clock, log] = [systemClock, silentLogger()];
  let isDue = false;
  const commit = (supply: Supply) => {
    isDue = false;
    supply.pull()?.stored();
  };
  const committer = {
    // Like the agent's committer, schedules one commit for all values of a batch.
    offer(supply: Supply) {
      if (!isDue) queueMicrotask(() => commit(supply));
      isDue = true;
    },
    isFullFor: () => false,
    isClosed: false,
    commitSoon: () => {},
  };
  const registerAt = (address: number): ModbusRegister => {
    return { table: 'holding', address, length: 1, type: 'uint16', wordsReversed: false, bytesSwapped: false };
  };
  const points = Array.from({ length: REGISTERS }, (_, at) => ({
    name: `T ${at}`,
    series: at + 1,
    everyMs: 1_000,
    shaping: UNSHAPED,
    spec: { register: registerAt(at) },
  }));
  const status = new SourceStatus({ name: 'plc', kind: 'modbus', points, isPolled: true, clock, log });
  const gate = new Gate({ status, timeFrom: 'source', committer, stamps: new Stamps(), clock, log });
  const spec: ModbusSpec = {
    address: { transport: 'tcp', host: '127.0.0.1', port },
    unit: 1,
    timeoutMs: 3_000,
    maxRegisters: 120,
    connections: 1,
    pauseMs: 0,
    settleMs: 0,
    isAnyUnit: false,
    isSunSpec: false,
    closeAfterPoll: false,
  };
  const line = new ModbusLine(spec.address, clock, log);
  line.join({ name: 'plc', spec });
  const trouble = new TroubleLog(log, clock);
  const reader = new BlockReader({ source: 'plc', points, maxRegisters: 120, clock, trouble });
  const { signal } = new AbortController();
  const read = (span: Span) => line.send(readRequest(spec, span), signal);
  return async () => {
    const { readings } = await reader.poll(read);
    await gate.write(readings);
  };
}
