import { describe, expect, it } from 'vitest';
import { silentLogger } from '../../../src/base/logger.ts';
import type { ModbusAddress, ModbusConnection } from '../../../src/sources/modbus/connection.ts';
import { ModbusLine } from '../../../src/sources/modbus/line.ts';
import { exceptionOf, ModbusError } from '../../../src/sources/modbus/modbus-error.ts';
import { ManualClock } from '../../doubles/manual-clock.ts';

const TCP: ModbusAddress = { transport: 'tcp', host: 'plc', port: 502 };
const RTU: ModbusAddress = { transport: 'rtu', path: '/dev/line', baud: 9_600, parity: 'even', stopBits: 1 };
const TIMEOUT_MS = 1_000;
const ANSWER_MS = 10;

/** What a unit does with a request: answers with its number, or fails. */
type Behaviour = 'answers' | 'hangs' | 'busy' | 'closes' | 'garbles';

/** A line whose other end the test plays, on a clock that the test moves. */
function lineOf(address = TCP, connections = 1) {
  const clock = new ManualClock();
  const units = new Map<number, Behaviour>();
  const frames: { unit: number; atMs: number }[] = [];
  const warnings: { event: string; unit?: number }[] = [];
  const world = { isReachable: true, opened: 0, open: 0, mostOpen: 0, atOnce: 0, mostAtOnce: 0 };
  const live = new Set<() => void>();
  const log = silentLogger();
  log.warn = ((fields: { event: string }) => warnings.push(fields)) as typeof log.warn;
  const open = async (_: ModbusAddress, onClosed: () => void): Promise<ModbusConnection> => {
    await clock.sleep(1);
    if (!world.isReachable) throw new ModbusError('no connection', 'closed');
    world.opened++;
    world.mostOpen = Math.max(world.mostOpen, ++world.open);
    let isOpen = true;
    const end = () => {
      if (isOpen) world.open--;
      isOpen = false;
    };
    const cut = () => {
      live.delete(cut);
      end();
      onClosed();
    };
    live.add(cut);
    return {
      get isOpen() {
        return isOpen;
      },
      async close() {
        live.delete(cut);
        end();
      },
      async read(unit) {
        frames.push({ unit, atMs: clock.monotonicMs() });
        world.mostAtOnce = Math.max(world.mostAtOnce, ++world.atOnce);
        try {
          const behaviour = units.get(unit) ?? 'answers';
          await clock.sleep(behaviour === 'hangs' ? TIMEOUT_MS : ANSWER_MS);
          if (behaviour === 'hangs') throw new ModbusError('no answer', 'silent');
          if (behaviour === 'busy') throw exceptionOf(6);
          if (behaviour === 'garbles') throw new ModbusError('CRC error', 'garbled');
          if (behaviour === 'closes') cut();
          if (!isOpen) throw new ModbusError('the connection ended', 'closed');
          return Uint8Array.of(unit);
        } finally {
          world.atOnce--;
        }
      },
    };
  };
  const line = new ModbusLine({ address, clock, log, open });
  for (const unit of [1, 2, 3, 9]) line.join(unit, `plc${unit}`, connections);
  const ask = (unit: number) =>
    line.read(unit, { table: 'holding', address: 0, length: 1 }, TIMEOUT_MS).then(
      ([answered]) => answered!,
      (error: ModbusError) => error.failure,
    );
  /** Asks every unit once and gives what came of it. */
  const round = async (...of: number[]) => {
    const asked = Promise.all(of.map(ask));
    await clock.advance(5 * TIMEOUT_MS);
    return await asked;
  };
  return { clock, units, frames, warnings, world, line, ask, round, cutAll: () => [...live].map((cut) => cut()) };
}

describe('a Modbus line', () => {
  it('carries the requests to all its devices over one connection, one at a time, in turn', async () => {
    const { world, round, frames } = lineOf();
    expect(await round(1, 2, 3, 1, 2, 3)).toEqual([1, 2, 3, 1, 2, 3]);
    expect(frames.map(({ unit }) => unit)).toEqual([1, 2, 3, 1, 2, 3]);
    expect(world).toMatchObject({ opened: 1, mostOpen: 1, mostAtOnce: 1 });
  });

  it('opens as many connections as it is told, and one on a serial line', async () => {
    const several = lineOf(TCP, 3);
    await several.round(1, 2, 3, 4, 5, 6);
    expect(several.world).toMatchObject({ mostOpen: 3, mostAtOnce: 3 });
    const serial = lineOf(RTU, 3);
    await serial.round(1, 2, 3, 4, 5, 6);
    expect(serial.world).toMatchObject({ mostOpen: 1, mostAtOnce: 1 });
  });

  it('lets a device that hangs cost its neighbours one timeout a try, and tries it ever more rarely', async () => {
    const { clock, units, ask, frames, world } = lineOf();
    units.set(9, 'hangs');
    const answered: number[] = [];
    const failures: string[] = [];
    const poll = async (unit: number, everyMs: number) => {
      for (let dueMs = clock.monotonicMs(); dueMs < 121_000; dueMs += everyMs) {
        await clock.sleep(Math.max(0, dueMs - clock.monotonicMs()));
        const got = await ask(unit);
        if (unit === 9) failures.push(String(got));
        else answered.push(clock.monotonicMs());
      }
    };
    void poll(9, 500);
    void poll(1, 500);
    await clock.advance(125_000);
    const gaps = answered.slice(1).map((atMs, at) => atMs - answered[at]!);
    expect(answered.length).toBeGreaterThan(220);
    expect(Math.max(...gaps)).toBeLessThanOrEqual(TIMEOUT_MS + 500 + 2 * ANSWER_MS);
    const tries = frames.filter(({ unit }) => unit === 9).length;
    expect([tries >= 4, tries <= 15]).toEqual([true, true]);
    expect(new Set(failures)).toEqual(new Set(['silent', 'resting']));
    expect(world.opened).toBe(1);
  });

  it('asks a device that hung again at once when it answers', async () => {
    const { clock, units, round, line, warnings } = lineOf();
    units.set(9, 'hangs');
    expect(await round(9, 9)).toEqual(['silent', 'resting']);
    units.clear();
    await clock.advance(30_000);
    expect(await round(9, 9, 1)).toEqual([9, 9, 1]);
    expect(line.errorOf(9)).toBeUndefined();
    expect(warnings.map(({ event, unit }) => [event, unit])).toEqual([['modbus.silent', 9]]);
  });

  it('fails everything at once while there is no connection, and tries for one by back-off', async () => {
    const { clock, world, round, line, warnings, frames } = lineOf();
    world.isReachable = false;
    expect(await round(1, 2, 3)).toEqual(['closed', 'resting', 'resting']);
    expect(line.state).toMatchObject({ isOpen: false, error: { message: 'no connection' } });
    world.isReachable = true;
    await clock.advance(30_000);
    expect(await round(1, 2, 3)).toEqual([1, 2, 3]);
    expect(line.state).toMatchObject({ isOpen: true, error: undefined });
    expect([warnings.length, frames.length]).toEqual([1, 3]);
  });

  it('makes a new connection where the device ended one that was quiet, without failing anything', async () => {
    const { world, round, cutAll, line } = lineOf();
    await round(1);
    cutAll();
    expect(line.state.isOpen).toBe(false);
    expect(await round(1, 2)).toEqual([1, 2]);
    expect(world.opened).toBe(2);
  });

  it('rests after a connection that ended before it answered anything, as of a device that has one already', async () => {
    const { units, world, round } = lineOf();
    units.set(1, 'closes');
    expect(await round(1, 1)).toEqual(['closed', 'resting']);
    expect(world.opened).toBe(1);
  });

  it('takes a connection for dead over which nobody answers, not for one of several devices', async () => {
    const { clock, units, round, world } = lineOf();
    await round(1, 2);
    units.set(2, 'hangs');
    await round(2, 1);
    await clock.advance(30_000);
    await round(2, 1);
    expect(world.opened).toBe(1);
    for (const unit of [1, 3]) units.set(unit, 'hangs');
    await clock.advance(30_000);
    await round(1, 2, 3);
    units.clear();
    await clock.advance(60_000);
    expect(await round(1, 2, 3)).toEqual([1, 2, 3]);
    expect(world.opened).toBe(2);
  });

  it('leaves a serial device alone until a late answer would have come, and the line silent between frames', async () => {
    const { clock, units, frames, ask } = lineOf(RTU);
    units.set(9, 'hangs');
    for (let tries = 0; tries < 8; tries++) {
      void ask(9);
      await clock.advance(TIMEOUT_MS + 40_000);
    }
    const hung = frames.splice(0);
    const gaps = hung.slice(1).map(({ atMs }, at) => atMs - hung[at]!.atMs - TIMEOUT_MS);
    expect(Math.min(...gaps)).toBeGreaterThanOrEqual(TIMEOUT_MS);
    void Promise.all([ask(1), ask(2), ask(3)]);
    await clock.advance(TIMEOUT_MS);
    const pauses = frames.slice(1).map(({ atMs }, at) => atMs - frames[at]!.atMs - ANSWER_MS);
    // Three and a half characters of eleven bits at 9600 baud.
    expect(Math.min(...pauses)).toBeGreaterThanOrEqual(4);
  });

  it('begins anew after an answer that is none', async () => {
    const { units, round, world } = lineOf();
    units.set(2, 'garbles');
    expect(await round(1, 2, 1)).toEqual([1, 'garbled', 1]);
    expect(world.opened).toBe(2);
  });

  it('ends what waits when it stops, and keeps the next one back until it is closed', async () => {
    const { clock, units, ask, line, world } = lineOf();
    units.set(9, 'hangs');
    const asked = Promise.all([ask(9), ask(1)]);
    await clock.advance(20);
    await line.stop();
    await clock.advance(TIMEOUT_MS);
    expect([await asked, world.open]).toEqual([['silent', 'closed'], 0]);
    expect(await ask(1)).toBe('closed');
  });

  it('lets go of who stops waiting, while the request goes on', async () => {
    const { clock, units, line, round } = lineOf();
    units.set(9, 'hangs');
    const end = new AbortController();
    const span = { table: 'holding', address: 0, length: 1 } as const;
    const reading = line.read(9, span, TIMEOUT_MS, end.signal);
    await clock.advance(20);
    end.abort(new Error('enough'));
    await expect(reading).rejects.toThrow('enough');
    expect(await round(1)).toEqual([1]);
  });
});
