import { createRequire } from 'node:module';
import { type AddressInfo, createServer } from 'node:net';
import type { ServerTCP as ServerTCPType } from 'modbus-serial';
import { afterEach, describe, expect, it } from 'vitest';
import type { ModbusRegister } from '../../src/config/tags.ts';
import { silentLogger } from '../../src/logger.ts';
import { ModbusReader } from '../../src/sources/modbus.ts';
import { blocksOf, placeOf } from '../../src/sources/modbus-registers.ts';
import { pointsOf } from '../../src/sources/points.ts';
import { PollLoop } from '../../src/sources/poll-loop.ts';
import { makeDoor, storeFault, tagOf, until } from './sink-double.ts';

const { ServerTCP } = createRequire(import.meta.url)('modbus-serial') as { ServerTCP: typeof ServerTCPType };

const ended: (() => unknown)[] = [];
afterEach(async () => {
  for (const end of ended.splice(0).reverse()) await end();
});

/** The slave takes 0 for 502. */
async function freePort(): Promise<number> {
  const server = createServer();
  await new Promise<void>((resolve) => server.listen(0, '127.0.0.1', resolve));
  const { port } = server.address() as AddressInfo;
  await new Promise((resolve) => server.close(resolve));
  return port;
}

/** A slave that nobody here wrote, over registers that a test fills. */
async function slave(at = 0) {
  const port = at || (await freePort());
  const image = Buffer.alloc(65_536 * 2);
  const requests: string[] = [];
  const forbidden = new Set<number>();
  const registers = (table: string) => (address: number, length: number) => {
    requests.push(`${table} ${address}+${length}`);
    for (let at = address; at < address + length; at++) {
      if (forbidden.has(at)) throw Object.assign(new Error('no such register'), { modbusErrorCode: 2 });
    }
    return Array.from({ length }, (_, at) => image.readUInt16BE((address + at) * 2));
  };
  const bits = (table: string) => (address: number) => {
    requests.push(`${table} ${address}`);
    return address % 3 === 0;
  };
  const server = new ServerTCP(
    {
      getMultipleHoldingRegisters: registers('holding'),
      getHoldingRegister: (address: number) => registers('holding')(address, 1)[0]!,
      getMultipleInputRegisters: registers('input'),
      getInputRegister: (address: number) => registers('input')(address, 1)[0]!,
      getCoil: bits('coil'),
      getDiscreteInput: bits('discrete'),
    },
    { host: '127.0.0.1', port, unitID: 7 },
  );
  await new Promise<void>((resolve) => server.on('initialized', () => resolve()));
  const end = () => new Promise<void>((resolve) => server.close(() => resolve()));
  ended.push(end);
  return { image, requests, forbidden, port, end };
}

function register(table: ModbusRegister['table'], address: number, more: Partial<ModbusRegister> = {}): ModbusRegister {
  return {
    table,
    address,
    type: table === 'coil' || table === 'discrete' ? 'bool' : 'uint16',
    wordOrder: 'big',
    scale: 1,
    ...more,
  };
}

function readerOf(registers: ModbusRegister[], port: number, timeoutMs = 1_000) {
  const tag = tagOf(
    'PLC',
    5,
    registers.map((each, at) => ({ key: `r${at}`, from: { kind: 'modbus', source: 'plc1', register: each } })),
  );
  const tags = new Map([['PLC', tag]]);
  const door = makeDoor(tags);
  const points = pointsOf(tags, 'plc1', 'modbus', door.intake);
  const warnings: { event: string; value?: string; error?: string }[] = [];
  const log = silentLogger();
  log.warn = ((fields: { event: string }) => warnings.push(fields)) as typeof log.warn;
  const reader = new ModbusReader({
    name: 'plc1',
    url: `tcp://127.0.0.1:${port}`,
    unit: 7,
    points,
    clock: door.clock,
    log,
    timeoutMs,
  });
  ended.push(() => reader.stop());
  const values = async () => {
    const columns = await reader.read();
    return Object.fromEntries(
      Array.from({ length: columns.length }, (_, at) => [
        door.catalogue.get(columns.series[at]!)!.key,
        columns.value[at]!,
      ]),
    );
  };
  return { ...door, reader, values, warnings, log };
}

describe('registers', () => {
  it.each([
    ['holding', 40001, 0],
    ['holding', 49999, 9998],
    ['holding', 400001, 0],
    ['holding', 465536, 65535],
    ['holding', 30013, 30013],
    ['holding', 0, 0],
    ['input', 30013, 12],
    ['input', 2007, 2007],
    ['discrete', 10001, 0],
    ['coil', 17, 17],
  ] as const)('%s %i is address %i', (table, address, wire) => {
    expect(placeOf(register(table, address)).address).toBe(wire);
  });

  it('come together where they lie near, never more than a slave gives at once', () => {
    const near = [
      register('holding', 10),
      register('holding', 11, { type: 'float64' }),
      register('holding', 20),
      register('input', 12),
      register('holding', 40),
    ];
    const points = near.map((each) => ({ origin: { register: each } }));
    expect(blocksOf(points).map(({ table, address, length }) => `${table} ${address}+${length}`)).toEqual([
      'holding 10+11',
      'input 12+1',
      'holding 40+1',
    ]);
    const many = Array.from({ length: 300 }, (_, at) => ({ origin: { register: register('holding', at) } }));
    const blocks = blocksOf(many);
    expect(blocks.every((block) => block.length <= 125)).toBe(true);
    expect(blocks.reduce((sum, block) => sum + block.points.length, 0)).toBe(300);
    expect(blocksOf(points, new Set([points[1]!])).map((block) => block.points.length)).toEqual([1, 1, 1, 1, 1]);
  });
});

describe('a Modbus source', () => {
  it('reads every type in both word orders, scaled, from a slave in as few requests as it can', async () => {
    const { image, requests, port } = await slave();
    image.writeInt16BE(-215, 0);
    image.writeUInt16BE(65_535, 2);
    image.writeInt32BE(-123_456_789, 4);
    image.writeUInt32BE(4_000_000_000, 8);
    image.writeFloatBE(12.3, 12);
    image.writeDoubleBE(Math.PI, 16);
    const low = Buffer.alloc(8);
    low.writeDoubleBE(-Math.E);
    for (let word = 0; word < 4; word++) low.copy(image, 24 + word * 2, 6 - word * 2, 8 - word * 2);
    image.writeUInt16BE(0x1234, 32);
    image.writeUInt16BE(0x0001, 34);
    const { values } = readerOf(
      [
        register('holding', 40001, { type: 'int16', scale: 0.1 }),
        register('holding', 40002),
        register('holding', 40003, { type: 'int32' }),
        register('holding', 40005, { type: 'uint32' }),
        register('holding', 40007, { type: 'float32' }),
        register('holding', 40009, { type: 'float64' }),
        register('holding', 40013, { type: 'float64', wordOrder: 'little' }),
        register('holding', 40017, { type: 'uint32', wordOrder: 'little' }),
        register('input', 30018, { type: 'bool' }),
        register('coil', 3),
        register('discrete', 4),
      ],
      port,
    );
    expect(await values()).toEqual({
      r0: -21.5,
      r1: 65_535,
      r2: -123_456_789,
      r3: 4_000_000_000,
      r4: 12.3,
      r5: Math.PI,
      r6: -Math.E,
      r7: 0x11234,
      r8: 1,
      r9: 1,
      r10: 0,
    });
    expect(requests.toSorted()).toEqual(['coil 3', 'discrete 4', 'holding 0+18', 'input 17+1']);
  });

  it('reads registers one by one where a slave refuses what lies between, and says which it never gives', async () => {
    const { image, forbidden, port } = await slave();
    image.writeUInt16BE(1, 20);
    image.writeUInt16BE(2, 24);
    forbidden.add(11);
    const { values, warnings } = readerOf(
      [register('holding', 10), register('holding', 12), register('holding', 11)],
      port,
    );
    await values();
    expect(await values()).toEqual({ r0: 1, r1: 2 });
    await values();
    expect(warnings).toMatchObject([{ event: 'modbus.unreadable', value: 'PLC r2' }]);
    forbidden.clear();
    expect(await values()).toEqual({ r0: 1, r1: 2, r2: 0 });
  });

  it('leaves out a float that is no number, and reads its neighbours', async () => {
    const { image, port } = await slave();
    image.writeFloatBE(Number.NaN, 0);
    const { values, warnings } = readerOf([register('holding', 0, { type: 'float32' }), register('holding', 2)], port);
    expect(await values()).toEqual({ r1: 0 });
    expect(warnings).toMatchObject([{ value: 'PLC r0', error: 'it holds no number' }]);
  });

  it('comes back by itself after the slave was away, with jitter between its tries', async () => {
    const first = await slave();
    const { values, clock, reader } = readerOf([register('holding', 1)], first.port);
    expect(await values()).toEqual({ r0: 0 });
    await first.end();
    await expect(reader.read()).rejects.toMatchObject({ code: 'modbus.unreachable', retryable: true });
    const second = await slave(first.port);
    second.image.writeUInt16BE(9, 2);
    let found: Record<string, number> | undefined;
    while (found === undefined) {
      await clock.advance(1_000);
      found = await values().catch(() => undefined);
    }
    expect(found).toEqual({ r0: 9 });
  });

  it('counts a poll only when its values are on disk', async () => {
    const { port } = await slave();
    const { reader, sink, clock, log, counted } = readerOf([register('holding', 1)], port);
    const countIngested = (source: string, values: number) => {
      counted.set(source, (counted.get(source) ?? 0) + values);
    };
    const loop = new PollLoop({
      name: 'plc1',
      everyMs: 1_000,
      sink,
      clock,
      log,
      countIngested,
      read: (signal) => reader.read(signal),
    });
    sink.fault = storeFault('buffer.full', 10_000);
    loop.start();
    await until(() => loop.stats.refused === 1);
    await clock.advance(5_000);
    expect([loop.stats.polls, counted.size, sink.appends]).toEqual([0, 0, 1]);
    sink.fault = undefined;
    await clock.advance(6_000);
    await until(() => loop.stats.polls > 0);
    expect(counted.get('plc1')).toBe(loop.stats.polls);
    await loop.stop();
  });
});
