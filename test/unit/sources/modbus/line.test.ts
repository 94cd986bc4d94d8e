import { connect } from 'node:net';
import { afterEach, beforeEach, describe, expect, it } from 'vitest';
import { until } from '../sink-double.ts';
import { exception, type ScriptedDevice } from './device.ts';
import { at, EVERY_MS, type OpenedSource, Plant } from './plant.ts';

const TIMEOUT_MS = 1_000;
const SILENT_UNIT = 9;

let plant: Plant;
let device: ScriptedDevice;

beforeEach(async () => {
  plant = new Plant();
  device = await plant.device();
});
afterEach(() => plant.close());

const VALUE = { v: 'register: holding 10' };
const TWO_BLOCKS = { v: 'register: holding 10', w: 'register: holding 150' };

const open = (unit: number, members = '', registers: Record<string, string> = VALUE) =>
  plant.open(`${at(device)}, unit: ${unit}, timeout: ${TIMEOUT_MS}ms${members}`, registers, `plc${unit}`);

/** Polls all sources once, from the next multiple of their interval. */
async function pollAll(sources: readonly OpenedSource[]): Promise<unknown[]> {
  return await Promise.all(sources.map((source) => plant.start(source)));
}

/** Starts a source whose device does not respond, and waits for the timeout. */
async function pollSilent(source: OpenedSource, advanceMs = 0): Promise<void> {
  const before = device.requests.length;
  const polled = advanceMs === 0 ? plant.start(source) : plant.poll(source, advanceMs);
  await until(() => device.requests.length > before);
  await plant.clock.advance(TIMEOUT_MS);
  await polled;
}

const silentUnit = (): ScriptedDevice['respond'] => (request) =>
  request.unit === SILENT_UNIT ? undefined : device.read(request);

describe('Modbus line', () => {
  it('is shared by all sources of a host, which are served in turn over one connection', async () => {
    const sources = await Promise.all([1, 2, 3].map((unit) => open(unit, '', TWO_BLOCKS)));
    expect(await pollAll(sources)).toEqual(new Array(3).fill({ v: 10, w: 150 }));
    expect(device.requests.map(({ unit }) => unit)).toEqual([1, 2, 3, 1, 2, 3]);
    expect([device.opened, device.mostOpen]).toEqual([1, 1]);
  });

  it('opens the configured number of connections', async () => {
    const sources = await Promise.all([1, 2, 3, 4].map((unit) => open(unit, unit === 2 ? ', connections: 3' : '')));
    await pollAll(sources);
    expect(device.mostOpen).toBe(3);
  });

  it('delays other devices by one timeout per attempt of an unresponsive device, which is paused', async () => {
    device.respond = silentUnit();
    const [silent, other] = [await open(SILENT_UNIT), await open(1)];
    const respondedMs: number[] = [];
    other.status.listen(() => respondedMs.push(plant.clock.monotonicMs()));
    silent.running.start();
    other.running.start();
    while (respondedMs.length < 60) await plant.clock.advance(TIMEOUT_MS / 10);
    const gaps = respondedMs.slice(1).map((atMs, index) => atMs - respondedMs[index]!);
    expect(Math.max(...gaps)).toBeLessThanOrEqual(EVERY_MS + TIMEOUT_MS);
    expect(other.readings).toEqual(respondedMs.map(() => 10));
    const attempts = device.requests.filter(({ unit }) => unit === SILENT_UNIT).length;
    expect(attempts).toBeGreaterThan(5);
    expect(attempts).toBeLessThan(30);
    expect(silent.status).toMatchObject({ connected: false, problem: 'no response within 1000 ms' });
    expect(silent.status.errors).toBeGreaterThan(attempts);
    expect(device.opened).toBe(1);
    expect(plant.logged[0]).toMatchObject({ event: 'modbus.silent', unit: SILENT_UNIT, source: `plc${SILENT_UNIT}` });
  });

  it('replaces a connection over which no device responds any more', async () => {
    const source = await open(SILENT_UNIT);
    await plant.start(source);
    device.respond = (request) => (request.connection === 1 ? undefined : device.read(request));
    await pollSilent(source, EVERY_MS);
    for (let polls = 0; polls < 4 && device.opened === 1; polls++) {
      await plant.clock.advance(EVERY_MS - TIMEOUT_MS);
      await plant.clock.advance(TIMEOUT_MS);
    }
    await until(() => device.opened === 2 || device.sockets.size === 0);
    while (!source.status.connected) await plant.clock.advance(TIMEOUT_MS);
    expect(device.mostOpen).toBe(1);
  });

  it('pauses after failed connections, reports one failure and the recovery', async () => {
    const { port } = device;
    const source = await open(1);
    await device.close();
    await plant.start(source);
    for (let polls = 0; polls < 3; polls++) await plant.poll(source);
    expect(source.status).toMatchObject({
      connected: false,
      problem: `failed to connect to 127.0.0.1 port ${port}: ECONNREFUSED`,
      hint: expect.stringContaining('cable'),
      errors: 4,
    });
    device = await plant.device(false, port);
    while (!source.status.connected) await plant.poll(source);
    expect(plant.events().filter((event) => event !== 'modbus.disconnected')).toEqual(['modbus.disconnected_over']);
  });

  it('reports a serial port that does not exist with a hint', async () => {
    const source = await plant.open('modbus: "rtu:/dev/no-such-port", baud: 9600', VALUE);
    await plant.start(source);
    expect(source.status).toMatchObject({
      connected: false,
      problem: '/dev/no-such-port does not exist',
      hint: expect.stringContaining('/dev/serial/by-id/'),
    });
  });

  it('repeats a request once if the device closes the connection during it', async () => {
    const source = await open(1);
    await plant.start(source);
    device.respond = (request) => {
      device.respond = (next) => device.read(next);
      device.disconnectAll();
      return device.read(request);
    };
    expect(await plant.poll(source)).toEqual({ v: 10 });
    expect(plant.events()).toEqual([]);
  });

  it('is read without errors if the device closes the connection after each response', async () => {
    device.respond = (request) => {
      setImmediate(() => device.disconnectAll());
      return device.read(request);
    };
    const source = await open(1, '', TWO_BLOCKS);
    expect(await plant.start(source)).toEqual({ v: 10, w: 150 });
    expect(await plant.poll(source)).toEqual({ v: 10, w: 150 });
    expect([source.status.errors, plant.events()]).toEqual([0, []]);
  });

  it('pauses after a connection that ended before any response', async () => {
    device.respond = () => {
      device.disconnectAll();
      return undefined;
    };
    const [first, second] = [await open(1), await open(2)];
    await pollAll([first, second]);
    expect(device.opened).toBe(1);
    expect(second.status.problem).toBe('the connection was closed');
  });

  it('pauses between requests to a host, across sources and connections', async () => {
    const sources = [await open(1, ', pause: 50ms, connections: 2'), await open(2), await open(3)];
    const polled = pollAll(sources);
    while (device.requests.length < 3) await plant.clock.advance(1);
    await polled;
    const gaps = device.requests.slice(1).map(({ atMs }, index) => atMs - device.requests[index]!.atMs);
    expect(Math.min(...gaps)).toBeGreaterThanOrEqual(50);
  });

  it.each([
    ['tcp', 3_000, ''],
    ['tcp', 500, ''],
    ['rtu', 3_000, ', settle: 2s'],
    ['tcp', 500, ', settle: 2s'],
  ])('reads a device that ignores requests for 1.5 s after connecting: framing %s, timeout %i ms%s', async (...how) => {
    const [framing, timeoutMs, settle] = how;
    device = await plant.device(framing === 'rtu');
    const connectedMs = new Map<number, number>();
    device.opening = (connection) => connectedMs.set(connection, plant.clock.monotonicMs());
    device.respond = (request) =>
      request.atMs - connectedMs.get(request.connection)! < 1_500 ? undefined : device.read(request);
    const members = `${at(device)}, framing: ${framing}, timeout: ${timeoutMs}ms, every: 1s${settle}`;
    const source = await plant.open(members, VALUE);
    source.running.start();
    for (let times = 0; times < 200; times++) await plant.clock.advance(100);
    expect([source.status.connected, device.opened]).toEqual([true, 1]);
    expect(source.readings).toContain(10);
    // Delays by `settle`, or by timeouts that are reported as such, are not late polls.
    expect(source.status.pollsLate).toBe(0);
    if (settle !== '') expect(source.status.errors).toBe(0);
  });

  it('uses the settings of the remaining sources after a reload', async () => {
    const slow = await open(2, ', pause: 10s');
    const source = await open(1);
    await slow.running.stop();
    await plant.start(source);
    expect(await plant.poll(source)).toEqual({ v: 10 });
  });

  it('is replaced if a reload changes the framing', async () => {
    const source = await open(1);
    await plant.start(source);
    await source.running.stop();
    const replaced = await open(1, ', framing: rtu');
    void plant.start(replaced);
    await until(() => device.opened === 2);
    expect(device.mostOpen).toBe(1);
  });

  it('disconnects after the last of simultaneous polls with `close_after_poll`', async () => {
    const sources = [await open(1, ', close_after_poll: true', TWO_BLOCKS), await open(2, '', TWO_BLOCKS)];
    await pollAll(sources);
    expect(device.sockets.size).toBe(1);
    const isClosed = async () => {
      await plant.clock.advance(100);
      await until(() => device.sockets.size === 0);
    };
    await isClosed();
    const client = connect(device.port, '127.0.0.1');
    await until(() => device.sockets.size === 1);
    client.destroy();
    await until(() => device.sockets.size === 0);
    await Promise.all(sources.map((source) => plant.poll(source, EVERY_MS)));
    await isClosed();
    expect(device.mostOpen).toBe(1);
    expect(sources.map(({ status }) => [status.connected, status.errors])).toEqual([
      [true, 0],
      [true, 0],
    ]);
  });

  it('closes its connections when the last source stops, even during a request', async () => {
    device.respond = silentUnit();
    const [silent, other] = [await open(SILENT_UNIT), await open(1)];
    await plant.start(other);
    void plant.start(silent);
    await until(() => device.requests.some(({ unit }) => unit === SILENT_UNIT));
    await other.running.stop();
    expect(device.sockets.size).toBe(1);
    await silent.running.stop();
    await until(() => device.sockets.size === 0);
    const again = await open(1);
    expect(await plant.start(again)).toEqual({ v: 10 });
  });
});

describe('write to a Modbus device', () => {
  const guard = () => {};
  const { signal } = new AbortController();
  const WRITABLE = {
    one: 'register: holding 100',
    two: 'register: holding 110, type: float32',
    coil: 'register: coil 7',
  };

  const openWritable = async (members = '') => {
    const source = await open(1, members, WRITABLE);
    const write = (at: number, raw: number, check = guard, end = signal) =>
      source.running.write!(source.points[at]!, raw, check, end);
    return { source, write };
  };
  /** Makes the device reject these functions. */
  const reject = (...codes: number[]) => {
    device.respond = (request) => (codes.includes(request.code) ? exception(request.code, 1) : device.read(request));
  };

  it('sends registers and coils, and reads them back', async () => {
    const { source, write } = await openWritable();
    await write(0, 5);
    await write(1, 1.5);
    await write(2, 1);
    expect(device.taken()).toEqual(['6: 100+5', '16: 110+2', `5: 7+${0xff00}`]);
    expect(await source.running.readOne!(source.points[0]!, signal)).toBe(100);
    device.missing.add(100);
    await expect(source.running.readOne!(source.points[0]!, signal)).rejects.toMatchObject({ exception: 2 });
  });

  it('uses the function for several registers or coils if the device does not support the other one', async () => {
    const { write } = await openWritable();
    reject(5, 6);
    await write(0, 5);
    await write(2, 0);
    expect(device.taken()).toEqual(['6: 100+5', '16: 100+1', '5: 7+0', '15: 7+1']);
  });

  it('calls the guard before each of the two functions for a single register', async () => {
    const { write } = await openWritable();
    reject(6, 16);
    let calls = 0;
    const guardOnce = () => {
      if (++calls === 2) throw new Error('WRITES is off');
    };
    await expect(write(0, 5, guardOnce)).rejects.toThrow('WRITES is off');
    expect(device.taken()).toEqual(['6: 100+5']);
    await expect(write(0, 5)).rejects.toMatchObject({ exception: 1 });
    expect(device.taken()).toEqual(['6: 100+5', '16: 100+1']);
  });

  it.each(['tcp', 'rtu'])('resets the connection if there is no response with the framing %s', async (framing) => {
    device = await plant.device(framing === 'rtu');
    device.respond = () => undefined;
    const { write } = await openWritable(`, framing: ${framing}`);
    const failed = expect(write(0, 5)).rejects.toMatchObject({ failure: 'silent' });
    await until(() => device.requests.length > 0);
    await plant.clock.advance(TIMEOUT_MS);
    await failed;
    await until(() => device.ends.length > 0);
    expect(device.ends).toEqual(['ECONNRESET']);
  });

  it.each(['aborted', 'closed'])('resets the connection if it is %s', async (how) => {
    device.respond = () => undefined;
    const { source, write } = await openWritable();
    const end = new AbortController();
    const failed = expect(write(0, 5, guard, end.signal)).rejects.toThrow();
    await until(() => device.requests.length > 0);
    if (how === 'aborted') end.abort(new Error('stopping'));
    else await source.running.stop();
    await failed;
    await until(() => device.ends.length > 0);
    expect(device.ends).toEqual(['ECONNRESET']);
  });

  it('closes the connection without a reset after a rejected write', async () => {
    const { source, write } = await openWritable();
    reject(6, 16);
    await expect(write(0, 5)).rejects.toMatchObject({ failure: 'exception' });
    await source.running.stop();
    await until(() => device.ends.length > 0);
    expect(device.ends).toEqual(['FIN']);
  });
});
