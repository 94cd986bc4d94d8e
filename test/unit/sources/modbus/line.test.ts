import { describe, expect, it } from 'vitest';
import { silentLogger } from '../../../../src/base/logger.ts';
import type { ModbusAddress, ModbusConnection } from '../../../../src/sources/modbus/connection.ts';
import { type LineRules, ModbusLine } from '../../../../src/sources/modbus/line.ts';
import { ModbusError } from '../../../../src/sources/modbus/modbus-error.ts';
import { ManualClock } from '../../doubles/manual-clock.ts';

const TCP: ModbusAddress = { transport: 'tcp', host: 'plc', port: 502 };
const RTU: ModbusAddress = { transport: 'rtu', path: '/dev/line', baud: 9_600, parity: 'even', stopBits: 1 };
const TIMEOUT_MS = 1_000;
const RESPONSE_MS = 10;

/** Behaviour of a unit: it responds with its number, or fails. */
type Behaviour = 'responds' | 'hangs' | 'closes' | 'garbles';

/** A line with simulated devices and a manual clock. */
function lineOf(address = TCP, connections = 1, rules: Partial<LineRules> = {}) {
  const clock = new ManualClock();
  const units = new Map<number, Behaviour>();
  const frames: { unit: number; atMs: number }[] = [];
  const warnings: { event: string; unit?: number }[] = [];
  const network = { isReachable: true, opened: 0, open: 0, mostOpen: 0, atOnce: 0, mostAtOnce: 0 };
  const sockets = new Set<() => void>();
  const log = silentLogger();
  log.warn = ((fields: { event: string }) => warnings.push(fields)) as typeof log.warn;
  const open = async (): Promise<ModbusConnection> => {
    await clock.sleep(1);
    if (!network.isReachable) throw new ModbusError('no connection', 'closed');
    network.opened++;
    network.mostOpen = Math.max(network.mostOpen, ++network.open);
    const disconnect = () => {
      if (sockets.delete(disconnect)) network.open--;
    };
    sockets.add(disconnect);
    return {
      get isOpen() {
        return sockets.has(disconnect);
      },
      close: async () => disconnect(),
      write: async () => {},
      async read(unit) {
        frames.push({ unit, atMs: clock.monotonicMs() });
        network.mostAtOnce = Math.max(network.mostAtOnce, ++network.atOnce);
        try {
          const behaviour = units.get(unit) ?? 'responds';
          await clock.sleep(behaviour === 'hangs' ? TIMEOUT_MS : RESPONSE_MS);
          if (behaviour === 'hangs') throw new ModbusError('no response', 'silent');
          if (behaviour === 'garbles') throw new ModbusError('CRC error', 'garbled');
          if (behaviour === 'closes') disconnect();
          if (!sockets.has(disconnect)) throw new ModbusError('the connection was closed', 'closed');
          return Uint8Array.of(unit);
        } finally {
          network.atOnce--;
        }
      },
    };
  };
  const line = new ModbusLine({ address, clock, log, open });
  for (const unit of [1, 2, 3, 9])
    line.join(unit, `plc${unit}`, { connections, pauseMs: 0, closeAfterPoll: false, ...rules });
  const request = (unit: number) =>
    line.read(unit, { table: 'holding', address: 0, length: 1 }, TIMEOUT_MS).then(
      ([number]) => number!,
      (error: ModbusError) => error.failure,
    );
  /** Sends one request to each unit. Returns their responses, or the kinds of their failures. */
  const round = async (...numbers: number[]) => {
    const responses = Promise.all(numbers.map(request));
    await clock.advance(5 * TIMEOUT_MS);
    return await responses;
  };
  return {
    clock,
    units,
    frames,
    warnings,
    network,
    line,
    request,
    round,
    disconnectAll: () => [...sockets].map((disconnect) => disconnect()),
  };
}

describe('Modbus line', () => {
  it('alternates between all devices over one connection', async () => {
    const { network, round, frames } = lineOf();
    expect(await round(1, 2, 3, 1, 2, 3)).toEqual([1, 2, 3, 1, 2, 3]);
    expect(frames.map(({ unit }) => unit)).toEqual([1, 2, 3, 1, 2, 3]);
    expect(network).toMatchObject({ opened: 1, mostOpen: 1, mostAtOnce: 1 });
  });

  it('opens the configured number of connections over TCP, but only one on a serial line', async () => {
    const several = lineOf(TCP, 3);
    await several.round(1, 2, 3, 4, 5, 6);
    expect(several.network).toMatchObject({ mostOpen: 3, mostAtOnce: 3 });
    const serial = lineOf(RTU, 3);
    await serial.round(1, 2, 3, 4, 5, 6);
    expect(serial.network).toMatchObject({ mostOpen: 1, mostAtOnce: 1 });
  });

  it('delays other devices by at most one timeout per request to an unresponsive device, and backs off', async () => {
    const { clock, units, request, frames, network } = lineOf();
    units.set(9, 'hangs');
    const respondedMs: number[] = [];
    const failures: string[] = [];
    const poll = async (unit: number, everyMs: number) => {
      for (let dueMs = clock.monotonicMs(); dueMs < 121_000; dueMs += everyMs) {
        await clock.sleep(Math.max(0, dueMs - clock.monotonicMs()));
        const result = await request(unit);
        if (unit === 9) failures.push(String(result));
        else respondedMs.push(clock.monotonicMs());
      }
    };
    void poll(9, 500);
    void poll(1, 500);
    await clock.advance(125_000);
    const gaps = respondedMs.slice(1).map((atMs, at) => atMs - respondedMs[at]!);
    expect(respondedMs.length).toBeGreaterThan(220);
    expect(Math.max(...gaps)).toBeLessThanOrEqual(TIMEOUT_MS + 500 + 2 * RESPONSE_MS);
    const attempts = frames.filter(({ unit }) => unit === 9).length;
    expect([attempts >= 4, attempts <= 15]).toEqual([true, true]);
    expect(new Set(failures)).toEqual(new Set(['silent', 'resting']));
    expect(network.opened).toBe(1);
  });

  it('resumes requests to a device as soon as it responds again', async () => {
    const { clock, units, round, warnings } = lineOf();
    units.set(9, 'hangs');
    expect(await round(9, 9)).toEqual(['silent', 'resting']);
    units.clear();
    await clock.advance(30_000);
    expect(await round(9, 9, 1)).toEqual([9, 9, 1]);
    expect(warnings.map(({ event, unit }) => [event, unit])).toEqual([['modbus.silent', 9]]);
  });

  it('fails requests immediately while disconnected, and reconnects with backoff', async () => {
    const { clock, network, round, warnings, frames } = lineOf();
    network.isReachable = false;
    expect(await round(1, 2, 3)).toEqual(['closed', 'resting', 'resting']);
    network.isReachable = true;
    await clock.advance(30_000);
    expect(await round(1, 2, 3)).toEqual([1, 2, 3]);
    expect([warnings.length, frames.length]).toEqual([1, 3]);
  });

  it('reconnects without reporting a failure if the device closed an idle connection', async () => {
    const { network, round, disconnectAll } = lineOf();
    await round(1);
    disconnectAll();
    expect(await round(1, 2)).toEqual([1, 2]);
    expect(network.opened).toBe(2);
  });

  it('pauses after a connection that ended before any response', async () => {
    const { units, network, round } = lineOf();
    units.set(1, 'closes');
    expect(await round(1, 1)).toEqual(['closed', 'resting']);
    expect(network.opened).toBe(1);
  });

  it('drops a connection only if none of the devices respond', async () => {
    const { clock, units, round, network } = lineOf();
    await round(1, 2);
    units.set(2, 'hangs');
    await round(2, 1);
    await clock.advance(30_000);
    await round(2, 1);
    expect(network.opened).toBe(1);
    for (const unit of [1, 3]) units.set(unit, 'hangs');
    await clock.advance(30_000);
    await round(1, 2, 3);
    units.clear();
    await clock.advance(60_000);
    expect(await round(1, 2, 3)).toEqual([1, 2, 3]);
    expect(network.opened).toBe(2);
  });

  it('waits for late responses and for silence between frames on a serial line', async () => {
    const { clock, units, frames, request } = lineOf(RTU);
    units.set(9, 'hangs');
    for (let attempt = 0; attempt < 8; attempt++) {
      void request(9);
      await clock.advance(TIMEOUT_MS + 40_000);
    }
    const hung = frames.splice(0);
    const gaps = hung.slice(1).map(({ atMs }, at) => atMs - hung[at]!.atMs - TIMEOUT_MS);
    expect(Math.min(...gaps)).toBeGreaterThanOrEqual(TIMEOUT_MS);
    void Promise.all([request(1), request(2), request(3)]);
    await clock.advance(TIMEOUT_MS);
    const pauses = frames.slice(1).map(({ atMs }, at) => atMs - frames[at]!.atMs - RESPONSE_MS);
    // Three and a half characters of eleven bits at 9600 baud.
    expect(Math.min(...pauses)).toBeGreaterThanOrEqual(4);
  });

  it('pauses between requests to a host, across devices and connections', async () => {
    const { frames, round } = lineOf(TCP, 2, { pauseMs: 50 });
    expect(await round(1, 2, 3, 1)).toEqual([1, 2, 3, 1]);
    const gaps = frames.slice(1).map(({ atMs }, at) => atMs - frames[at]!.atMs);
    expect(Math.min(...gaps)).toBeGreaterThanOrEqual(50);
  });

  it('follows the settings of the remaining sources after a reload', async () => {
    const { line, frames, round, network } = lineOf();
    const leave = line.join(1, 'plc1', { connections: 1, pauseMs: 500, closeAfterPoll: true });
    await round(1, 2);
    expect(frames[1]!.atMs - frames[0]!.atMs).toBeGreaterThanOrEqual(500);
    leave();
    frames.length = 0;
    const end = line.use();
    await round(1, 2);
    end();
    expect(frames[1]!.atMs - frames[0]!.atMs).toBe(RESPONSE_MS);
    expect(network.open).toBe(1);
  });

  it('pauses longer than the silence of a serial line if configured', async () => {
    const { frames, round } = lineOf(RTU, 1, { pauseMs: 50 });
    await round(1, 2, 3);
    expect(frames.slice(1).map(({ atMs }, at) => atMs - frames[at]!.atMs - RESPONSE_MS)).toEqual([50, 50]);
  });

  it('disconnects after the last simultaneous poll if configured', async () => {
    const { line, round, network } = lineOf(TCP, 1, { closeAfterPoll: true });
    const [endFirst, endSecond] = [line.use(), line.use()];
    await round(1, 2);
    endFirst();
    await round(2);
    expect(network).toMatchObject({ opened: 1, open: 1 });
    endSecond();
    expect(network.open).toBe(0);
    const end = line.use();
    expect(await round(1)).toEqual([1]);
    end();
    expect(network).toMatchObject({ opened: 2, open: 0 });
  });

  it('disconnects after the response to a request from a stopped poll, if configured', async () => {
    const { clock, line, request, network } = lineOf(TCP, 1, { closeAfterPoll: true });
    const end = line.use();
    const response = request(1);
    await clock.advance(5);
    end();
    expect(network.open).toBe(1);
    await clock.advance(TIMEOUT_MS);
    expect([await response, network.open, network.opened]).toEqual([1, 0, 1]);
  });

  it('reconnects after a missing response from a host that forwards serial frames', async () => {
    const { clock, units, round, network } = lineOf({ ...TCP, framing: 'rtu' } as ModbusAddress);
    units.set(9, 'hangs');
    expect(await round(1, 9)).toEqual([1, 'silent']);
    await clock.advance(1_000);
    expect(await round(1)).toEqual([1]);
    expect(network.opened).toBe(2);
  });

  it('reconnects after an invalid response', async () => {
    const { units, round, network } = lineOf();
    units.set(2, 'garbles');
    expect(await round(1, 2, 1)).toEqual([1, 'garbled', 1]);
    expect(network.opened).toBe(2);
  });

  it('rejects pending requests on shutdown, and delays the next line until it is closed', async () => {
    const { clock, units, request, line, network } = lineOf();
    units.set(9, 'hangs');
    const responses = Promise.all([request(9), request(1)]);
    await clock.advance(20);
    await line.stop();
    await clock.advance(TIMEOUT_MS);
    expect([await responses, network.open]).toEqual([['silent', 'closed'], 0]);
    expect(await request(1)).toBe('closed');
  });

  it('rejects an aborted read immediately while its request continues', async () => {
    const { clock, units, line, round } = lineOf();
    units.set(9, 'hangs');
    const end = new AbortController();
    const span = { table: 'holding', address: 0, length: 1 } as const;
    const reading = line.read(9, span, TIMEOUT_MS, end.signal);
    await clock.advance(20);
    end.abort(new Error('stopping'));
    await expect(reading).rejects.toThrow('stopping');
    expect(await round(1)).toEqual([1]);
  });
});
