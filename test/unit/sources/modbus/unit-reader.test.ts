import { describe, expect, it } from 'vitest';
import { exceptionOf, ModbusError } from '../../../../src/sources/modbus/modbus-error.ts';
import { type ModbusRegister, readRegister, type WrittenRegister } from '../../../../src/sources/modbus/register.ts';
import type { RegisterPoint } from '../../../../src/sources/modbus/requests.ts';
import { UnitReader } from '../../../../src/sources/modbus/unit-reader.ts';
import { ManualClock } from '../../doubles/manual-clock.ts';
import { seeded } from '../sink-double.ts';

const MINUTE_MS = 60_000;

/** A simulated device whose registers contain their addresses, and the requests it received. */
function device(maxRegisters = 120) {
  const clock = new ManualClock();
  const missing = new Set<number>();
  const requests: string[] = [];
  let fault: ((address: number, length: number) => Error | undefined) | undefined;
  let maxLength = 125;
  const reader = new UnitReader<RegisterPoint>({
    clock,
    maxRegisters,
    async request({ table, address, length }) {
      requests.push(`${table} ${address}+${length}`);
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
  const read = async (points: RegisterPoint[]) => {
    requests.length = 0;
    const values: number[] = [];
    const failed: number[] = [];
    const readings = {
      value: (_: unknown, raw: number | string) => values.push(Number(raw)),
      failed: ({ spec }: RegisterPoint) => failed.push(spec.register.address),
      skipped: ({ spec }: RegisterPoint) => failed.push(spec.register.address),
    };
    const reading = reader.read(points, readings, new AbortController().signal).catch((error: ModbusError) => error);
    for (let waits = 0; waits < 10; waits++) await clock.advance(clock.waiting > 0 ? 1_000 : 0);
    return { error: await reading, values: values.sort((a, b) => a - b), failed: failed.sort((a, b) => a - b) };
  };
  return {
    clock,
    missing,
    requests,
    points,
    read,
    setFault: (next: typeof fault) => {
      fault = next;
    },
    setMaxLength: (length: number) => {
      maxLength = length;
    },
  };
}

function pointOf(written: WrittenRegister): RegisterPoint {
  return { spec: { register: readRegister(written) as ModbusRegister } };
}

const range = (from: number, count: number) => Array.from({ length: count }, (_, at) => from + at);

describe('Modbus unit reader', () => {
  it('reads nearby registers in one request within the protocol limit', async () => {
    const { points, read, requests } = device();
    await read([...points([10, 20, 40]), ...points([11], 'float64')]);
    expect(requests).toEqual(['holding 10+11', 'holding 40+1']);
    const { values } = await read(points(range(0, 300)));
    expect([requests.length, values.length]).toEqual([3, 300]);
  });

  it('reads at most `max_registers` per request, except for a longer value', async () => {
    const { points, read, requests } = device(3);
    expect((await read([...points(range(0, 8)), ...points([20], 'float64')])).failed).toEqual([]);
    expect(requests).toEqual(['holding 0+3', 'holding 3+3', 'holding 6+2', 'holding 20+4']);
  });

  it('locates a missing register by halving requests, and skips it for a limited time', async () => {
    const { clock, missing, points, read, requests } = device();
    missing.add(137);
    const all = points(range(100, 60));
    const first = await read(all);
    expect([first.values.length, first.failed]).toEqual([59, [137]]);
    expect(requests.length).toBeLessThan(15);
    const second = await read(all);
    expect([requests, second.failed]).toEqual([['holding 100+37', 'holding 138+22'], [137]]);
    missing.clear();
    await clock.advance(11 * MINUTE_MS);
    const third = await read(all);
    expect([requests, third.failed, third.values.length]).toEqual([
      ['holding 100+37', 'holding 137+1', 'holding 138+22'],
      [],
      60,
    ]);
    await read(all);
    expect(requests).toEqual(['holding 100+60']);
  });

  it('returns every existing register for any combination of missing registers and gaps', async () => {
    const random = seeded(7);
    for (let round = 0; round < 40; round++) {
      const { missing, points, read, setMaxLength, requests } = device();
      for (let at = 0; at < 200; at++) if (random() < 0.05) missing.add(at);
      if (round % 4 === 0) setMaxLength(10);
      const wanted = range(0, 200).filter(() => random() < 0.4);
      const existing = wanted.filter((address) => !missing.has(address));
      const first = await read(points(wanted));
      expect([first.values, first.failed]).toEqual([existing, wanted.filter((address) => missing.has(address))]);
      await read(points(wanted));
      const secondCount = requests.length;
      const third = await read(points(wanted));
      expect([third.values, requests.length <= secondCount]).toEqual([existing, true]);
    }
  });

  it('retries requests to a busy device without changing their size', async () => {
    const { points, read, requests, setFault } = device();
    const all = points(range(0, 20));
    let busy = 2;
    setFault(() => (busy-- > 0 ? exceptionOf(6) : undefined));
    expect((await read(all)).values.length).toBe(20);
    expect(requests).toEqual(['holding 0+20', 'holding 0+20', 'holding 0+20']);
    busy = 100;
    expect((await read(all)).failed.length).toBe(20);
    busy = 0;
    await read(all);
    expect(requests).toEqual(['holding 0+20']);
  });

  it('does not halve requests for an unsupported table', async () => {
    const { points, read, requests, setFault } = device();
    setFault(() => exceptionOf(1));
    expect((await read(points(range(0, 100)))).failed.length).toBe(100);
    expect(requests.length).toBe(1);
  });

  it('returns the registers that were read before the device stopped responding, and reports the others', async () => {
    const { points, read, requests, setFault } = device();
    setFault((address) => (address >= 50 ? new ModbusError('no response', 'silent') : undefined));
    const { error, values, failed } = await read(points([0, 1, 50, 51, 90]));
    expect([values, failed, requests.length]).toEqual([[0, 1], [50, 51, 90], 2]);
    expect(error).toMatchObject({ code: 'modbus.silent' });
  });

  it('reads two bits of a register and overlapping registers in one request', async () => {
    const { read, requests } = device();
    const registers = [
      { register: 'holding 7', bit: 0 },
      { register: 'holding 7', bit: 1 },
      { register: 'holding 7', bit: 3 },
      { register: 'holding 7' },
      { register: 'holding 6', type: 'uint32' as const },
    ].map(pointOf);
    expect((await read(registers)).values).toEqual([0, 1, 1, 7, 6 * 65_536 + 7]);
    expect(requests).toEqual(['holding 6+2']);
  });
});
