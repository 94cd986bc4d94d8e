import { describe, expect, it } from 'vitest';
import { exceptionOf, ModbusError } from '../../../src/sources/modbus/modbus-error.ts';
import { type ModbusRegister, readRegister, type WrittenRegister } from '../../../src/sources/modbus/register.ts';
import type { RegisterPoint } from '../../../src/sources/modbus/requests.ts';
import { UnitReader } from '../../../src/sources/modbus/unit-reader.ts';
import { ManualClock } from '../../doubles/manual-clock.ts';
import { seeded } from '../sink-double.ts';

const MINUTE_MS = 60_000;

/** A device in memory that holds its addresses, and what is asked of it. */
function device() {
  const clock = new ManualClock();
  const missing = new Set<number>();
  const asked: string[] = [];
  let fault: ((address: number, length: number) => Error | undefined) | undefined;
  let maxLength = 125;
  const reader = new UnitReader<RegisterPoint>({
    clock,
    async ask({ table, address, length }) {
      asked.push(`${table} ${address}+${length}`);
      const error = fault?.(address, length);
      if (error) throw error;
      if (length > maxLength) throw exceptionOf(3);
      const bytes = new Uint8Array(length * 2);
      for (let at = 0; at < length; at++) {
        if (missing.has(address + at)) throw exceptionOf(2);
        new DataView(bytes.buffer).setUint16(at * 2, address + at);
      }
      return bytes;
    },
  });
  const points = (addresses: number[], type: ModbusRegister['type'] = 'uint16') =>
    addresses.map((address) => pointOf({ register: `holding ${address}`, type }));
  const read = async (of: RegisterPoint[]) => {
    asked.length = 0;
    const values: number[] = [];
    const failed: number[] = [];
    const readings = {
      value: (_: unknown, raw: number) => values.push(raw),
      failed: ({ spec }: RegisterPoint) => failed.push(spec.register.address),
      skipped: ({ spec }: RegisterPoint) => failed.push(spec.register.address),
    };
    const reading = reader.read(of, readings, new AbortController().signal).catch((error: ModbusError) => error);
    for (let waits = 0; waits < 10; waits++) await clock.advance(clock.waiting > 0 ? 1_000 : 0);
    return { error: await reading, values: values.sort((a, b) => a - b), failed: failed.sort((a, b) => a - b) };
  };
  return {
    clock,
    missing,
    asked,
    points,
    read,
    fail: (with_: typeof fault) => {
      fault = with_;
    },
    bound: (length: number) => {
      maxLength = length;
    },
  };
}

function pointOf(written: WrittenRegister): RegisterPoint {
  return { spec: { register: readRegister(written) as ModbusRegister } };
}

const range = (from: number, count: number) => Array.from({ length: count }, (_, at) => from + at);

describe('reading a device', () => {
  it('asks for registers that lie near each other in one request, within what a device gives at once', async () => {
    const { points, read, asked } = device();
    await read([...points([10, 20, 40]), ...points([11], 'float64')]);
    expect(asked).toEqual(['holding 10+11', 'holding 40+1']);
    const { values } = await read(points(range(0, 300)));
    expect([asked.length, values.length]).toEqual([3, 300]);
  });

  it('finds a register that the device does not have by halving, and leaves it alone for a while', async () => {
    const { clock, missing, points, read, asked } = device();
    missing.add(137);
    const all = points(range(100, 60));
    const first = await read(all);
    expect([first.values.length, first.failed]).toEqual([59, [137]]);
    expect(asked.length).toBeLessThan(15);
    const second = await read(all);
    expect([asked, second.failed]).toEqual([['holding 100+37', 'holding 138+22'], [137]]);
    missing.clear();
    await clock.advance(11 * MINUTE_MS);
    const third = await read(all);
    expect([asked, third.failed, third.values.length]).toEqual([
      ['holding 100+37', 'holding 137+1', 'holding 138+22'],
      [],
      60,
    ]);
    await read(all);
    expect(asked).toEqual(['holding 100+60']);
  });

  it('gives every register that the device has, whatever is missing and wherever the holes lie', async () => {
    const random = seeded(7);
    for (let round = 0; round < 40; round++) {
      const { missing, points, read, bound, asked } = device();
      for (let at = 0; at < 200; at++) if (random() < 0.05) missing.add(at);
      if (round % 4 === 0) bound(10);
      const wanted = range(0, 200).filter(() => random() < 0.4);
      const has = wanted.filter((address) => !missing.has(address));
      const first = await read(points(wanted));
      expect([first.values, first.failed]).toEqual([has, wanted.filter((address) => missing.has(address))]);
      await read(points(wanted));
      const learned = asked.length;
      const third = await read(points(wanted));
      expect([third.values, asked.length <= learned]).toEqual([has, true]);
    }
  });

  it('asks a busy device again, and never for more than before', async () => {
    const { points, read, asked, fail } = device();
    const all = points(range(0, 20));
    let busy = 2;
    fail(() => (busy-- > 0 ? exceptionOf(6) : undefined));
    expect((await read(all)).values.length).toBe(20);
    expect(asked).toEqual(['holding 0+20', 'holding 0+20', 'holding 0+20']);
    busy = 100;
    expect((await read(all)).failed.length).toBe(20);
    busy = 0;
    await read(all);
    expect(asked).toEqual(['holding 0+20']);
  });

  it('does not halve for a table that the device does not know', async () => {
    const { points, read, asked, fail } = device();
    fail(() => exceptionOf(1));
    expect((await read(points(range(0, 100)))).failed.length).toBe(100);
    expect(asked.length).toBe(1);
  });

  it('keeps what came before the device fell silent, and tells of all that did not', async () => {
    const { points, read, asked, fail } = device();
    fail((address) => (address >= 50 ? new ModbusError('no answer', 'silent') : undefined));
    const { error, values, failed } = await read(points([0, 1, 50, 51, 90]));
    expect([values, failed, asked.length]).toEqual([[0, 1], [50, 51, 90], 2]);
    expect(error).toMatchObject({ code: 'modbus.silent' });
  });

  it('reads two bits of one register, and a register within another, in one request', async () => {
    const { read, asked } = device();
    const of = [
      { register: 'holding 7', bit: 0 },
      { register: 'holding 7', bit: 1 },
      { register: 'holding 7', bit: 3 },
      { register: 'holding 7' },
      { register: 'holding 6', type: 'uint32' as const },
    ].map(pointOf);
    expect((await read(of)).values).toEqual([0, 1, 1, 7, 6 * 65_536 + 7]);
    expect(asked).toEqual(['holding 6+2']);
  });
});
