import { mkdtempSync, rmSync } from 'node:fs';
import { createServer, type Socket } from 'node:net';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterEach, describe, expect, it } from 'vitest';
import { systemClock } from '../../../../src/base/clock.ts';
import { silentLogger } from '../../../../src/base/logger.ts';
import { freePort } from '../../../../src/base/port-claim.ts';
import type { Source } from '../../../../src/config/tags.ts';
import { Gate } from '../../../../src/sources/intake/gate.ts';
import type { ModbusAddress } from '../../../../src/sources/modbus/connection.ts';
import type { ModbusSpec } from '../../../../src/sources/modbus/line.ts';
import { ModbusLines } from '../../../../src/sources/modbus/lines.ts';
import { ModbusSource, testModbus } from '../../../../src/sources/modbus/modbus-source.ts';
import { type ModbusRegister, readRegister, type WrittenRegister } from '../../../../src/sources/modbus/register.ts';
import { pointsOf } from '../../../../src/sources/points.ts';
import { Peer, SerialPair } from '../../../e2e/harness/modbus-peer.ts';
import { makeIntakeBench, originOf, tagOf, until } from '../../../unit/sources/sink-double.ts';

const cleanUps: (() => unknown)[] = [];
afterEach(async () => {
  for (const end of cleanUps.splice(0).reverse()) await end();
});

interface SourceOptions {
  unit?: number;
  everyMs?: number;
  timeoutMs?: number;
  /** Poll intervals of values that differ from `everyMs`. */
  everyMsOf?: Record<string, number>;
  registers: Record<string, WrittenRegister>;
}

/** Sources with one address, each with its own gate. */
function sourcesOf(address: ModbusAddress, wanted: Record<string, SourceOptions>) {
  const tags = new Map(
    Object.entries(wanted).map(([name, { registers, everyMs = 50, everyMsOf = {} }], at) => {
      const values = Object.entries(registers).map(([key, written]) => ({
        key,
        from: originOf(
          'modbus',
          name,
          { register: readRegister(written) as ModbusRegister },
          { everyMs: everyMsOf[key] ?? everyMs },
        ),
      }));
      return [name, tagOf(name, 900 + at, values)] as const;
    }),
  );
  const { intake, sink, stamps, catalogue } = makeIntakeBench(tags);
  const log = silentLogger();
  const events: string[] = [];
  for (const level of ['info', 'warn'] as const) {
    // Repeated entries depend on machine speed.
    log[level] = ((fields: { event: string; value?: string; count?: number }) =>
      fields.event.startsWith('modbus.') &&
      (fields.event.endsWith('_over') || fields.count === undefined || fields.count === 1) &&
      events.push(fields.value ? `${fields.event} ${fields.value}` : fields.event)) as typeof log.info;
  }
  const clock = systemClock;
  const lines = new ModbusLines(clock, log);
  const contexts = Object.entries(wanted).map(([name, { unit = 1, everyMs = 50, timeoutMs = 500 }]) => {
    const spec: ModbusSpec = {
      address,
      unit,
      timeoutMs,
      maxRegisters: 120,
      connections: 1,
      pauseMs: 0,
      closeAfterPoll: false,
    };
    const source: Source<ModbusSpec> = { kind: 'modbus', name, everyMs, timeFrom: 'source', spec };
    const gate = new Gate({ source: name, timeFrom: 'source', committer: sink, stamps, clock, log });
    const points = pointsOf(tags, name, intake) as never;
    return { source, points, gate, clock, log, waitMs: 0, signal: new AbortController().signal } as never;
  });
  const sources = new Map(Object.keys(wanted).map((name, at) => [name, new ModbusSource(contexts[at]!, lines)]));
  for (const source of sources.values()) cleanUps.push(() => source.stop());
  /** Returns a source's values by key. */
  const read = (name: string, key: string) => {
    const address = `${900 + Object.keys(wanted).indexOf(name)}//${key}/`;
    return sink.stored.filter((one) => one.address === address).map(({ value }) => value);
  };
  return { sources, read, sink, contexts, events, catalogue, only: [...sources.values()][0]! };
}

async function tcp() {
  const port = await freePort();
  const peer = await Peer.tcp(port);
  cleanUps.push(() => peer.end());
  return { peer, port, address: { transport: 'tcp', host: '127.0.0.1', port } as const };
}

const COUNTER = { counter: { register: 'holding 10', type: 'uint32' } } as const;

describe('Modbus source', () => {
  it('reads a SunSpec register map at wire address 40000 in every byte order', async () => {
    const { address, peer } = await tcp();
    const { sources, read } = sourcesOf(address, {
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
    expect(peer.responses.slice(0, 2).map(({ address, count }) => [address, count])).toEqual([
      [150, 1],
      [40_000, 12],
    ]);
  });

  it('reports the first of many rejected registers immediately, and lists all of them in its state', async () => {
    const { address } = await tcp();
    const registers = Object.fromEntries(
      Array.from({ length: 12 }, (_, i) => [`no${i}`, { register: `holding ${201 + 2 * i}` }]),
    );
    const { only, events, read } = sourcesOf(address, {
      plc: { registers: { ...registers, a: { register: 'holding 198' } } },
    });
    only.start();
    await until(() => read('plc', 'a').length >= 3);
    expect(events).toEqual(['modbus.unreadable plc no0']);
    expect(only.state().problem).toContain('and 11 more');
  });

  it('reports a missing register and reads the remaining registers', async () => {
    const { address } = await tcp();
    const { only, read, events, contexts } = sourcesOf(address, {
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

  it('recovers after the device is disconnected', async () => {
    const { address, peer, port } = await tcp();
    const { only, read, events } = sourcesOf(address, { plc: { registers: COUNTER } });
    only.start();
    await until(() => read('plc', 'counter').length > 0);
    await peer.end();
    await until(() => only.state().connected === false);
    expect(only.state().problem).toMatch(
      /failed to connect to 127\.0\.0\.1 port \d+: ECONNREFUSED|the connection was closed/,
    );
    const second = await Peer.tcp(port);
    cleanUps.push(() => second.end());
    await until(() => second.counted(1).length > 3);
    await until(() => only.state().connected === true);
    expect(events).toEqual(['modbus.disconnected', 'modbus.disconnected_over']);
  });

  it('resumes reading two serial devices after their adapter is unplugged and plugged in again', async () => {
    const folder = mkdtempSync(join(tmpdir(), 'tagferry-serial-'));
    cleanUps.push(() => rmSync(folder, { recursive: true, force: true }));
    const pair = new SerialPair(folder);
    cleanUps.push(() => pair.unplug());
    await pair.plug();
    const first = await Peer.rtu(pair.theirs);
    cleanUps.push(() => first.end());
    const address = { transport: 'rtu', path: pair.ours, baud: 19_200, parity: 'even', stopBits: 1 } as const;
    const { sources, read, only } = sourcesOf(address, {
      one: { unit: 1, registers: COUNTER },
      two: { unit: 2, registers: COUNTER },
    });
    for (const source of sources.values()) source.start();
    await until(() => read('one', 'counter').length > 2 && read('two', 'counter').length > 2);
    await pair.unplug();
    await first.end();
    await until(() => only.state().problem?.endsWith(' does not exist') === true);
    expect(only.state()).toMatchObject({ connected: false, hint: expect.stringContaining('/dev/serial/by-id/') });
    const before = read('two', 'counter').length;
    expect(read('one', 'counter')).toEqual(first.counted(1).slice(0, read('one', 'counter').length));
    await pair.plug();
    const second = await Peer.rtu(pair.theirs);
    cleanUps.push(() => second.end());
    await until(() => read('two', 'counter').length > before + 2);
    expect(read('two', 'counter').slice(before)).toEqual(
      second.counted(2).slice(0, read('two', 'counter').length - before),
    );
  });
});

/** Modbus TCP device. `respond` returns the response to a read request for a register, as hexadecimal digits. */
async function deviceThat(respond: (address: number) => string) {
  const device = { respond, connections: 0 };
  const sockets = new Set<Socket>();
  const server = createServer((socket) => {
    device.connections++;
    sockets.add(socket);
    socket.on('error', () => {}).on('close', () => sockets.delete(socket));
    socket.on('data', (request) => {
      const frame = Buffer.from(device.respond(request.readUInt16BE(8)), 'hex');
      const header = Buffer.from(request.subarray(0, 6));
      header.writeUInt16BE(frame.length, 4);
      socket.write(Buffer.concat([header, frame]));
    });
  });
  const port = await freePort();
  await new Promise<void>((resolve) => server.listen(port, '127.0.0.1', resolve));
  cleanUps.push(() => {
    for (const socket of sockets) socket.destroy();
    server.close();
  });
  return { device, address: { transport: 'tcp', host: '127.0.0.1', port } as const };
}

const VALID = '01030400000007';
const WRONG_UNIT = '02030400000007';

describe('Modbus device that sends only invalid responses', () => {
  it.each([
    ['the wrong unit', WRONG_UNIT],
    ['the wrong function code', '01040400000007'],
    ['too few registers', '0103040000'],
    ['too many registers', '010304000000070000'],
    ['only a unit number', '01'],
    ['an exception without its code', '0183'],
    ['a byte count that exceeds the frame', '0103fa00000007'],
    ['a byte count of fewer registers', '01030200000007'],
  ])('is reported if a frame contains %s', async (_, frame) => {
    const { address } = await deviceThat(() => frame);
    const { only, events } = sourcesOf(address, { plc: { registers: COUNTER } });
    only.start();
    await until(() => only.state().errors >= 3 && only.state().problem !== undefined);
    expect(only.state()).toMatchObject({ connected: false, problem: expect.stringMatching(/^invalid response/) });
    expect(events).toEqual(['modbus.invalid_response']);
  });

  it('is retried at increasing intervals, and is reported as restored', async () => {
    const { device, address } = await deviceThat(() => WRONG_UNIT);
    const { only, read, events } = sourcesOf(address, { plc: { everyMs: 10, registers: COUNTER } });
    only.start();
    await until(() => only.state().errors >= 60);
    expect(device.connections).toBeLessThan(20);
    device.respond = () => VALID;
    await until(() => read('plc', 'counter').length > 0 && only.state().connected === true);
    expect(only.state().problem).toBeUndefined();
    expect(events).toEqual(['modbus.invalid_response', 'modbus.invalid_response_over']);
  });
});

describe('Modbus device that sends an invalid response for one register', () => {
  it('is polled without interruption if the register has another poll interval', async () => {
    const { address } = await deviceThat((register) => (register === 10 ? WRONG_UNIT : VALID));
    const good = { register: 'holding 150', type: 'uint32' } as const;
    const { only, read, events } = sourcesOf(address, {
      plc: { registers: { bad: COUNTER.counter, good }, everyMsOf: { bad: 20 } },
    });
    only.start();
    await until(() => events.length > 0);
    const before = read('plc', 'good').length;
    await until(() => read('plc', 'good').length >= before + 3);
    expect(only.state().problem).toContain('invalid response');
    expect(events).toEqual(['modbus.invalid_response']);
  });

  it('is polled without interruption, and the register is reported', async () => {
    const { device, address } = await deviceThat((register) => (register === 10 ? WRONG_UNIT : VALID));
    const registers = { bad: COUNTER.counter, good: { register: 'holding 150', type: 'uint32' } } as const;
    const { only, read, events } = sourcesOf(address, { plc: { registers } });
    only.start();
    await until(() => read('plc', 'good').length >= 3);
    expect(only.state()).toMatchObject({
      connected: true,
      problem: expect.stringMatching(/^plc bad \(holding 10.*: invalid response/),
    });
    expect(only.state().errors).toBeGreaterThanOrEqual(3);
    device.respond = () => VALID;
    await until(() => read('plc', 'bad').length > 0 && only.state().problem === undefined);
    expect(events).toEqual(['modbus.unreadable plc bad', 'modbus.unreadable_over plc bad']);
  });
});
