import { mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterEach, describe, expect, it } from 'vitest';
import { systemClock } from '../../../src/base/clock.ts';
import { silentLogger } from '../../../src/base/logger.ts';
import { freePort } from '../../../src/base/port-claim.ts';
import type { Source } from '../../../src/config/tags.ts';
import { Gate } from '../../../src/sources/gate.ts';
import type { ModbusAddress } from '../../../src/sources/modbus/connection.ts';
import { ModbusLines } from '../../../src/sources/modbus/lines.ts';
import { ModbusSource, testModbus } from '../../../src/sources/modbus/modbus-source.ts';
import type { ModbusSpec } from '../../../src/sources/modbus/modbus-spec.ts';
import { type ModbusRegister, readRegister, type WrittenRegister } from '../../../src/sources/modbus/register.ts';
import { pointsOf } from '../../../src/sources/points.ts';
import { makeIntakeBench, originOf, tagOf, until } from '../sink-double.ts';
import { Peer, SerialPair } from './peer.ts';

const ended: (() => unknown)[] = [];
afterEach(async () => {
  for (const end of ended.splice(0).reverse()) await end();
});

interface Wanted {
  unit?: number;
  everyMs?: number;
  timeoutMs?: number;
  registers: Record<string, WrittenRegister>;
}

/** Sources over one address, each with a gate of its own over one store. */
function plantOf(address: ModbusAddress, wanted: Record<string, Wanted>) {
  const tags = new Map(
    Object.entries(wanted).map(([name, { registers, everyMs = 50 }], at) => {
      const values = Object.entries(registers).map(([key, written]) => ({
        key,
        from: originOf('modbus', name, { register: readRegister(written) as ModbusRegister }, { everyMs }),
      }));
      return [name, tagOf(name, 900 + at, values)] as const;
    }),
  );
  const { intake, sink, stamps, catalogue } = makeIntakeBench(tags);
  const log = silentLogger();
  const events: string[] = [];
  for (const level of ['info', 'warn'] as const) {
    // Of trouble that goes on the first line; how often it comes after that depends on the machine.
    log[level] = ((fields: { event: string; value?: string; count?: number }) =>
      fields.event.startsWith('modbus.') &&
      (fields.event.endsWith('_over') || fields.count === undefined || fields.count === 1) &&
      events.push(fields.value ? `${fields.event} ${fields.value}` : fields.event)) as typeof log.info;
  }
  const clock = systemClock;
  const lines = new ModbusLines(clock, log);
  const contexts = Object.entries(wanted).map(([name, { unit = 1, everyMs = 50, timeoutMs = 500 }]) => {
    const spec: ModbusSpec = { address, unit, connections: 1, timeoutMs };
    const source: Source<ModbusSpec> = { kind: 'modbus', name, everyMs, timeFrom: 'source', spec };
    const gate = new Gate({ source: name, timeFrom: 'source', sink, stamps, clock, log });
    const points = pointsOf(tags, name, intake) as never;
    return { source, points, gate, clock, log, waitMs: 0, signal: new AbortController().signal } as never;
  });
  const sources = new Map(Object.keys(wanted).map((name, at) => [name, new ModbusSource(contexts[at]!, lines)]));
  for (const source of sources.values()) ended.push(() => source.stop());
  /** What a source has read, by key. */
  const read = (name: string, key: string) => {
    const address = `${900 + Object.keys(wanted).indexOf(name)}//${key}/`;
    return sink.stored.filter((one) => one.address === address).map(({ value }) => value);
  };
  return { sources, read, sink, contexts, events, catalogue, only: [...sources.values()][0]! };
}

async function tcp() {
  const port = await freePort();
  const peer = await Peer.tcp(port);
  ended.push(() => peer.end());
  return { peer, port, address: { transport: 'tcp', host: '127.0.0.1', port } as const };
}

const COUNTER = { counter: { register: 'holding 10', type: 'uint32' } } as const;

describe('a Modbus source', () => {
  it('reads a SunSpec map at 40000 by the address on the wire, in every order of bytes', async () => {
    const { address, peer } = await tcp();
    const { sources, read } = plantOf(address, {
      meter: {
        registers: {
          mark: { register: 'holding 40000', type: 'uint32' },
          length: { register: 'holding 40003' },
          watts: { register: 'holding 40004', type: 'float32' },
          swapped: { register: 'holding 40006', type: 'float32', byte_order: 'CDAB' },
          energy: { register: 'holding 40008', type: 'uint64' },
          bit: { register: 'holding 40003', bit: 1 },
          input: { register: 300_151 },
        },
      },
    });
    sources.get('meter')!.start();
    await until(() => read('meter', 'input').length > 0 && read('meter', 'mark').length > 0);
    const keys = ['mark', 'length', 'watts', 'swapped', 'energy', 'bit', 'input'];
    expect(keys.map((key) => read('meter', key)[0])).toEqual([0x53756e53, 66, 1234.5, 1234.5, 9_876_543_210, 1, 150]);
    expect(peer.answers.slice(0, 2).map(({ address, count }) => [address, count])).toEqual([
      [150, 1],
      [40_000, 12],
    ]);
  });

  it('reads two devices behind a gateway that takes one connection, one of which hangs', async () => {
    const { address, peer } = await tcp();
    await peer.tell({ connections: 1 });
    await peer.tell({ unit: 9, hang: true });
    const { sources, read, events } = plantOf(address, {
      good: { unit: 1, registers: COUNTER },
      hung: { unit: 9, timeoutMs: 100, registers: COUNTER },
    });
    for (const source of sources.values()) source.start();
    await until(() => peer.hangs >= 2);
    const before = read('good', 'counter').length;
    await until(() => read('good', 'counter').length > before + 10);
    expect([Math.max(...peer.connections), peer.refusedConnections, read('hung', 'counter')]).toEqual([1, 0, []]);
    expect(sources.get('good')!.state()).toMatchObject({ connected: true, errors: 0 });
    expect(sources.get('hung')!.state()).toMatchObject({ connected: false, problem: 'no answer within 100 ms' });
    expect(events).toEqual(['modbus.silent']);
    // What the device counted is what was read: nothing twice, nothing made up.
    const stored = read('good', 'counter');
    expect(stored).toEqual(peer.counted(1).slice(0, stored.length));
  });

  it('asks a device that is busy again, for the same and no more', async () => {
    const { address, peer } = await tcp();
    await peer.tell({ unit: 1, busy: 2 });
    const { only, read } = plantOf(address, {
      plc: { registers: { a: { register: 'holding 100' }, b: { register: 'holding 105' } } },
    });
    only.start();
    await until(() => read('plc', 'b').length >= 3);
    expect(new Set(peer.answers.map(({ address, count }) => `${address}+${count}`))).toEqual(new Set(['100+6']));
    expect(peer.answers.filter(({ exception }) => exception === 6).length).toBe(2);
  });

  it('says in one line what one answer of the device is the reason of, however many registers it is for', async () => {
    const { address } = await tcp();
    const registers = Object.fromEntries(
      Array.from({ length: 12 }, (_, i) => [`no${i}`, { register: `holding ${201 + 2 * i}` }]),
    );
    const { only, events, read } = plantOf(address, {
      plc: { registers: { ...registers, a: { register: 'holding 198' } } },
    });
    only.start();
    await until(() => read('plc', 'a').length >= 3);
    expect(events).toEqual(['modbus.unreadable plc no0']);
    expect(only.state().problem).toContain('and 11 more');
  });

  it('says which register a device does not have, and reads the others', async () => {
    const { address } = await tcp();
    const { only, read, events, contexts } = plantOf(address, {
      plc: { registers: { a: { register: 'holding 198' }, no: { register: 'holding 201' }, b: { register: 40_200 } } },
    });
    only.start();
    await until(() => read('plc', 'b').length >= 2);
    expect([read('plc', 'a')[0], read('plc', 'b')[0], read('plc', 'no')]).toEqual([198, 199, []]);
    expect(only.state()).toMatchObject({ connected: true, problem: expect.stringContaining('plc no (holding 201)') });
    expect(events).toEqual(['modbus.unreadable plc no']);
    const tested = await only.test(new AbortController().signal);
    expect(tested.map((one) => ('raw' in one ? one.raw : one.problem))).toEqual([
      198,
      expect.stringContaining('exception 2'),
      199,
    ]);
    await only.stop();
    expect((await testModbus(contexts[0]!)).map((one) => 'raw' in one)).toEqual([true, false, true]);
  });

  it('comes back by itself after the device was away', async () => {
    const { address, peer, port } = await tcp();
    const { only, read, events } = plantOf(address, { plc: { registers: COUNTER } });
    only.start();
    await until(() => read('plc', 'counter').length > 0);
    await peer.end();
    await until(() => only.state().connected === false);
    expect(only.state().problem).toMatch(/no connection to 127\.0\.0\.1 port \d+: ECONNREFUSED|the connection ended/);
    const second = await Peer.tcp(port);
    ended.push(() => second.end());
    await until(() => second.counted(1).length > 3);
    await until(() => only.state().connected === true);
    expect(events).toEqual(['modbus.disconnected', 'modbus.disconnected_over']);
  });

  it('reads two devices of a serial line, whose adapter is pulled out and plugged in again', async () => {
    const folder = mkdtempSync(join(tmpdir(), 'tagferry-serial-'));
    ended.push(() => rmSync(folder, { recursive: true, force: true }));
    const pair = new SerialPair(folder);
    ended.push(() => pair.unplug());
    await pair.plug();
    const first = await Peer.rtu(pair.theirs);
    ended.push(() => first.end());
    const address = { transport: 'rtu', path: pair.ours, baud: 19_200, parity: 'even', stopBits: 1 } as const;
    const { sources, read, only } = plantOf(address, {
      one: { unit: 1, registers: COUNTER },
      two: { unit: 2, registers: COUNTER },
    });
    for (const source of sources.values()) source.start();
    await until(() => read('one', 'counter').length > 2 && read('two', 'counter').length > 2);
    await pair.unplug();
    await first.end();
    await until(() => only.state().problem?.startsWith('there is no ') === true);
    expect(only.state()).toMatchObject({ connected: false, hint: expect.stringContaining('/dev/serial/by-id/') });
    const before = read('two', 'counter').length;
    expect(read('one', 'counter')).toEqual(first.counted(1).slice(0, read('one', 'counter').length));
    await pair.plug();
    const second = await Peer.rtu(pair.theirs);
    ended.push(() => second.end());
    await until(() => read('two', 'counter').length > before + 2);
    expect(read('two', 'counter').slice(before)).toEqual(
      second.counted(2).slice(0, read('two', 'counter').length - before),
    );
  });
});
