import { afterEach, beforeEach, describe, expect, it } from 'vitest';
import { seeded, until } from '../sink-double.ts';
import { type DeviceRequest, exception, type ScriptedDevice } from './device.ts';
import { at, EVERY_MS, type OpenedSource, Plant } from './plant.ts';

const MINUTE_MS = 60_000;
const TIMEOUT_MS = 3_000;

let plant: Plant;
let device: ScriptedDevice;

beforeEach(async () => {
  plant = new Plant();
  device = await plant.device();
});
afterEach(() => plant.close());

const range = (from: number, count: number) => Array.from({ length: count }, (_, index) => from + index);
/** Values of holding registers, by key. */
const holding = (addresses: readonly number[]) =>
  Object.fromEntries(addresses.map((address) => [`v${address}`, `register: holding ${address}`]));
const open = (registers: Record<string, string>, members = '') => plant.open(`${at(device)}${members}`, registers);
/** Addresses whose reading is a number. */
const read = (readings: Record<string, unknown>) =>
  Object.values(readings).filter((reading) => typeof reading === 'number');

describe('Modbus source', () => {
  it('reads nearby registers in one request within the protocol limit', async () => {
    const source = await open({ ...holding([10, 20, 40]), float: 'register: holding 11, type: float64' });
    await plant.start(source);
    expect(device.taken()).toEqual(['3: 10+11', '3: 40+1']);
    await source.running.stop();
    const many = await plant.open(at(device), holding(range(0, 300)), 'many');
    expect(read(await plant.start(many))).toEqual(range(0, 300));
    expect(device.taken()).toEqual(['3: 0+120', '3: 120+120', '3: 240+60']);
  });

  it('reads at most `max_registers` per request, except for a longer value', async () => {
    const registers = { ...holding(range(0, 8)), float: 'register: holding 20, type: float64' };
    await plant.start(await open(registers, ', max_registers: 3'));
    expect(device.taken()).toEqual(['3: 0+3', '3: 3+3', '3: 6+2', '3: 20+4']);
  });

  it('reads bits of a register and overlapping registers in one request', async () => {
    const source = await open({
      a: 'register: holding 7, bit: 0',
      b: 'register: holding 7, bit: 3',
      c: 'register: holding 7',
      d: 'register: holding 6, type: uint32',
    });
    expect(await plant.start(source)).toEqual({ a: 1, b: 0, c: 7, d: 6 * 65_536 + 7 });
    expect(device.taken()).toEqual(['3: 6+2']);
  });

  it('multiplies a number by the power of ten in its scale register, which is read in the same poll', async () => {
    const words = { 40083: 2346, 40084: 0xffff, 40090: 0x8000, 40091: 11, 40092: 2, 40093: 0xffff };
    for (const [address, word] of Object.entries(words)) device.words.set(Number(address), word);
    const source = await open(
      {
        power: 'register: holding 40083, type: int16, scale_register: holding 40084, no_value: 2346',
        down: 'register: holding 40083, scale_register: holding 40084, scale: 2, offset: 1',
        up: 'register: holding 40083, scale_register: holding 40092',
        unknown: 'register: holding 40083, scale_register: holding 40090',
        absurd: 'register: holding 40083, scale_register: holding 40091',
        missing: 'register: holding 40093, scale_register: holding 40084',
        bits: 'register: holding 40093, bit: 0-3',
        rejected: 'register: holding 40083, scale_register: holding 50',
      },
      ', no_value: sunspec',
    );
    device.missing.add(50);
    const readings = await plant.start(source);
    const values = source.points.map((point) => [point.name, source.status.latestOf(point.series)]);
    expect(Object.fromEntries(values.filter(([, value]) => value !== undefined))).toEqual({
      'plc down': 470.2,
      'plc up': 234_600,
    });
    expect(readings).toMatchObject({
      power: '2346 means "no value" (no_value)',
      unknown: 'holding 40090 (scale_register) contains 0x8000, which means "not implemented"',
      absurd: 'holding 40091 (scale_register) contains 11, but the exponent must be between -10 and 10',
      missing: '65535 means "no value" (no_value)',
      bits: 'the register contains 65535, which means "no value" (no_value)',
      rejected: expect.stringContaining('holding 50 (scale_register)'),
    });
    expect(source.status.problem).toMatch(/^plc rejected \(scale_register holding 50\): /);
    expect(device.taken()).toEqual(['3: 50+1', '3: 40083+11']);
  });

  it.each([
    ['after the value', '', 'register: holding 36, scale_register: holding 45', ['3: 36+10']],
    ['before the value', '', 'register: holding 36, scale_register: holding 30', ['3: 30+7']],
    ['over a larger gap', '', 'register: holding 36, scale_register: holding 52', ['3: 52+1', '3: 36+1', '3: 52+1']],
    [
      'that does not fit into the request',
      ', max_registers: 9',
      'register: holding 36, scale_register: holding 45',
      ['3: 45+1', '3: 36+1', '3: 45+1'],
    ],
    ['in another table', '', 'register: input 36, scale_register: holding 52', ['3: 52+1', '4: 36+1', '3: 52+1']],
  ])(
    'reads a scale register %s in the request of its value, or before and after',
    async (_, members, value, requests) => {
      for (const address of [30, 45, 52]) device.words.set(address, 1);
      device.words.set(36, 52);
      const source = await open({ v: value }, members);
      await plant.start(source);
      expect(source.status.latestOf(source.points[0]!.series)).toBe(520);
      expect(device.taken()).toEqual(requests);
    },
  );

  it.each([
    ['a small `max_registers`', ', max_registers: 4', 125, []],
    ['rejected gaps', '', 125, [45]],
    ['a length limit of the device', '', 10, []],
  ])('never multiplies a value by the scale factor of another moment: %s', async (_, members, maxCount, missing) => {
    device.maxCount = maxCount;
    for (const address of missing) device.missing.add(address);
    // The device changes the scale after 5 to 11 requests: 100 x 10^0 is 10 x 10^1.
    const random = seeded(3);
    let isLarge = false;
    let remaining = 5;
    device.respond = (request) => {
      if (remaining-- === 0) [isLarge, remaining] = [!isLarge, 5 + Math.floor(random() * 7)];
      for (const address of [36, 60]) device.words.set(address, isLarge ? 10 : 100);
      device.words.set(52, isLarge ? 1 : 0);
      return device.read(request);
    };
    const registers = {
      before: 'register: holding 36, scale_register: holding 52',
      after: 'register: holding 60, scale_register: holding 52',
    };
    const source = await open(registers, members);
    const values = new Set<unknown>();
    const problems = new Set<unknown>();
    for (let polls = 0; polls < 40; polls++) {
      const readings = await (polls === 0 ? plant.start(source) : plant.poll(source));
      for (const { series } of source.points) values.add(source.status.latestOf(series));
      for (const reading of Object.values(readings)) if (typeof reading === 'string') problems.add(reading);
    }
    values.delete(undefined);
    expect([...values]).toEqual([100]);
    expect([...problems]).toContain('holding 52 (scale_register) changed while the value was read');
  });

  it('reads all tables, and reports registers that do not contain a number of their type', async () => {
    device.words.set(303, 0x00a0);
    for (const address of [320, 321, 322, 323]) device.words.set(address, address === 320 ? 0x7ff0 : 0);
    const source = await open({
      coil: 'register: coil 17',
      discrete: 'register: discrete 20',
      input: 'register: 30012',
      no_bcd: 'register: holding 303, type: bcd16',
      infinite: 'register: holding 320, type: float64',
    });
    expect(await plant.start(source)).toEqual({
      coil: 1,
      discrete: 0,
      input: 11,
      no_bcd: 'the register does not contain BCD digits',
      infinite: 'the register does not contain a number',
    });
    expect(new Set(device.requests.map(({ code }) => code))).toEqual(new Set([1, 2, 3, 4]));
  });
});

describe('Modbus device that rejects registers', () => {
  it('is read one by one once, and then in blocks around the rejected register', async () => {
    device.missing.add(137);
    const source = await open(holding(range(100, 60)));
    const readings = await plant.start(source);
    expect(read(readings)).toEqual(range(100, 60).filter((address) => address !== 137));
    expect(readings.v137).toContain('exception 2');
    expect(device.taken().length).toBe(61);
    await plant.poll(source);
    expect(device.taken()).toEqual(['3: 100+37', '3: 137+1', '3: 138+22']);
  });

  it('is read around a register with another exception, without shorter blocks when the exception ends', async () => {
    let isFaulty = true;
    device.respond = (request) => {
      const { code, address, count } = request;
      const isAffected = isFaulty && address <= 102 && address + count > 102;
      return isAffected ? exception(code, 4) : device.read(request);
    };
    const source = await open(holding([100, 101, 102, 103, 104]));
    expect(read(await plant.start(source))).toEqual([100, 101, 103, 104]);
    device.taken();
    expect(source.status.hint).toBe('Check the display, the log and the power of the device.');
    for (let polls = 0; polls < 10; polls++) expect(read(await plant.poll(source))).toEqual([100, 101, 103, 104]);
    isFaulty = false;
    for (let polls = 0; polls < 20; polls++) await plant.poll(source);
    device.taken();
    expect(read(await plant.poll(source))).toEqual([100, 101, 102, 103, 104]);
    expect(device.taken()).toEqual(['3: 100+5']);
  });

  it('is retried after 5, 10, 20 s, up to ten minutes, and read in one block when it responds', async () => {
    device.missing.add(101);
    const source = await open(holding([100, 101, 102]));
    await plant.start(source);
    const triedMs: number[] = [];
    for (let polls = 0; polls < 500; polls++) {
      await plant.poll(source);
      if (device.taken().includes('3: 101+1')) triedMs.push(plant.clock.monotonicMs());
    }
    const pauses = triedMs.slice(1).map((atMs, index) => (atMs - triedMs[index]!) / EVERY_MS);
    expect(pauses.slice(0, 8)).toEqual([2, 4, 8, 16, 32, 64, 120, 120]);
    expect(Math.max(...pauses) * EVERY_MS).toBe(10 * MINUTE_MS);
    device.missing.clear();
    while (!device.taken().includes('3: 101+1')) await plant.poll(source);
    expect(await plant.poll(source)).toEqual({ v100: 100, v101: 101, v102: 102 });
    expect(device.taken()).toEqual(['3: 100+3']);
    expect(source.status.problem).toBeUndefined();
    expect(plant.events()).toEqual(['modbus.unreadable', 'modbus.unreadable_over']);
  });

  it('is logged once per source, with all rejected registers in the status', async () => {
    for (const address of range(200, 12)) device.missing.add(address);
    const source = await open(holding([...range(200, 12), 250]));
    await plant.start(source);
    for (let polls = 0; polls < 5; polls++) await plant.poll(source);
    expect(plant.logged[0]).toMatchObject({
      event: 'modbus.unreadable',
      source: 'plc',
      register: 'holding 200',
      error: expect.stringContaining('exception 2'),
      retryInMs: 5_000,
    });
    expect(source.status).toMatchObject({
      connected: true,
      problem: expect.stringMatching(/^plc v200 \(holding 200\) and 11 more: exception 2/),
      hint: expect.stringContaining('device manual'),
    });
    expect(plant.logged.slice(1)).toMatchObject([{ event: 'modbus.unreadable', objects: 11 }]);
  });

  it('returns every existing register for any combination of missing registers, gaps and limits', async () => {
    const random = seeded(7);
    for (let round = 0; round < 20; round++) {
      device.missing.clear();
      for (const address of range(0, 200)) if (random() < 0.05) device.missing.add(address);
      device.maxCount = round % 4 === 0 ? 10 : 125;
      const wanted = range(0, 200).filter(() => random() < 0.4);
      const existing = wanted.filter((address) => !device.missing.has(address));
      const source = await plant.open(at(device), holding(wanted), `plc${round}`);
      expect(read(await plant.start(source))).toEqual(existing);
      for (let polls = 0; polls < 8; polls++) expect(read(await plant.poll(source))).toEqual(existing);
      device.taken();
      await plant.poll(source);
      // Blocks are planned around missing registers, and only those that are due are read one by one.
      expect(device.taken().length).toBeLessThan(wanted.length);
      await source.running.stop();
    }
  });

  it('is read in shorter blocks if it limits their length', async () => {
    device.maxCount = 16;
    const source = await open(holding(range(0, 60)));
    for (let polls = 0; polls < 4; polls++) {
      expect(read(polls === 0 ? await plant.start(source) : await plant.poll(source))).toEqual(range(0, 60));
    }
    device.taken();
    await plant.poll(source);
    expect(device.taken()).toEqual(['3: 0+15', '3: 15+15', '3: 30+15', '3: 45+15']);
    expect(plant.events()).toEqual([]);
  });

  it('is not read one by one if it does not support the table', async () => {
    device.respond = (request) => (request.code === 3 ? exception(3, 1) : device.read(request));
    const source = await open({ ...holding([...range(0, 100), ...range(200, 100)]), input: 'register: input 5' });
    expect(read(await plant.start(source))).toEqual([5]);
    expect(device.taken()).toEqual(['3: 0+100', '3: 0+1', '3: 200+100', '3: 200+1', '4: 5+1']);
  });

  it('is retried within the poll while it is busy', async () => {
    let busy = 2;
    device.respond = (request) => (busy-- > 0 ? exception(3, 6) : device.read(request));
    const source = await open(holding(range(0, 20)), ', timeout: 60s');
    const started = plant.start(source);
    while (device.requests.length < 3) await plant.clock.advance(10);
    expect(read(await started).length).toBe(20);
    expect(device.taken()).toEqual(['3: 0+20', '3: 0+20', '3: 0+20']);
  });
});

/** Number of requests without a response. */
let ignored = 0;
beforeEach(() => {
  ignored = 0;
});
const ignore = () => {
  ignored++;
  return undefined;
};

/** Polls the source once, with a timeout after each request without a response. */
async function pollIgnored(source: OpenedSource, isFirst = false) {
  const { clock } = plant;
  let before = ignored;
  const started = isFirst ? plant.start(source) : plant.poll(source, EVERY_MS - (clock.monotonicMs() % EVERY_MS));
  let isDone = false;
  void started.then(() => {
    isDone = true;
  });
  while (!isDone) {
    await until(() => isDone || ignored > before);
    before = ignored;
    if (!isDone) await clock.advance(TIMEOUT_MS);
  }
  return read(await started);
}

describe('Modbus device that ignores long requests', () => {
  const LIMIT = 40;

  it.each([
    ['holding', 100, [25, 25, 25, 25]],
    ['discrete', 1600, [400, 400, 400, 400]],
  ] as const)('is read in shorter blocks, which are logged once: %s', async (table, count, lengths) => {
    const isLong = ({ code, count }: DeviceRequest) => count > LIMIT * (code === 2 ? 16 : 1);
    device.maxCount = 2_000;
    device.respond = (request) => (isLong(request) ? ignore() : device.read(request));
    const registers = range(0, count).map((address) => [`v${address}`, `register: ${table} ${address}`]);
    const source = await open(Object.fromEntries(registers));
    expect(await pollIgnored(source, true)).toEqual([]);
    for (let polls = 0; !plant.events().includes('modbus.requests_shortened'); polls++) {
      expect(polls).toBeLessThan(20);
      await pollIgnored(source);
    }
    device.taken();
    expect((await pollIgnored(source)).length).toBe(count);
    expect(device.requests.map((request) => request.count)).toEqual(lengths);
    expect(source.status).toMatchObject({ connected: true, problem: undefined });
    const shortened = plant.logged.filter(({ event }) => event === 'modbus.requests_shortened');
    expect(shortened).toMatchObject([{ source: 'plc', registers: 25 }]);
  });

  it('is still read in full blocks after an outage', async () => {
    device.respond = ignore;
    const source = await open(holding(range(0, 100)));
    await pollIgnored(source, true);
    for (let polls = 0; polls < 10; polls++) await pollIgnored(source);
    device.respond = (request) => device.read(request);
    while (!source.status.connected) await pollIgnored(source);
    device.taken();
    expect(await pollIgnored(source)).toEqual(range(0, 100));
    expect(device.taken()).toEqual(['3: 0+100']);
    expect(plant.events()).not.toContain('modbus.requests_shortened');
  });
});

describe('Modbus device that ignores requests for some registers', () => {
  const AFTER = 'no response within 3000 ms, although the device responds to other requests';
  const silentOn = (addresses: readonly number[]) => (request: DeviceRequest) => {
    const { address, count } = request;
    const isIgnored = addresses.some((one) => one >= address && one < address + count);
    return isIgnored ? ignore() : device.read(request);
  };

  it.each([
    ['in its own request', [0, 1, 50, 90], [50]],
    ['among others', [0, 1, 50, 51, 52, 90], [51]],
    ['at the beginning', [0, 1, 2, 50], [0]],
    ['at the beginning of the only request', [0, 1, 2, 3], [0]],
    ['at the end', [0, 1, 50, 90], [90]],
    ['in a long request', range(0, 100), [30]],
    ['in several requests', [0, 1, 50, 51, 90, 91, 130], [1, 50, 91]],
  ])('is read without these registers, which are reported and retried: %s', async (_, addresses, silent) => {
    device.respond = silentOn(silent);
    const source = await open(holding(addresses));
    const others = addresses.filter((address) => !silent.includes(address));
    await pollIgnored(source, true);
    for (let polls = 0; (await pollIgnored(source)).length < others.length; polls++) expect(polls).toBeLessThan(60);
    for (let polls = 0; polls < 200; polls++) await pollIgnored(source);
    const before = ignored;
    const { length: lines } = plant.logged;
    for (let polls = 0; polls < 100; polls++) expect(await pollIgnored(source)).toEqual(others);
    // One attempt in ten minutes.
    expect(ignored - before).toBeLessThanOrEqual(silent.length);
    // Only several attempts in a row are logged.
    expect(plant.logged.length - lines).toBeLessThanOrEqual(silent.length === 1 ? 0 : 2);
    expect(source.status).toMatchObject({
      connected: true,
      problem: expect.stringContaining(AFTER),
      hint: expect.stringContaining('device manual'),
    });
    expect(plant.logged.find(({ event }) => event === 'modbus.unreadable')).toMatchObject({ error: AFTER });
    device.respond = silentOn([]);
    for (let polls = 0; polls < 130; polls++) await pollIgnored(source);
    expect(await pollIgnored(source)).toEqual(addresses);
    expect(source.status.problem).toBeUndefined();
  });

  it('is not assumed for a device that fails as a whole', async () => {
    const source = await open(holding([0, 50, 90]));
    await plant.start(source);
    device.respond = ignore;
    for (let polls = 0; polls < 10; polls++) expect(await pollIgnored(source)).toEqual([]);
    device.respond = silentOn([]);
    while (!source.status.connected) await pollIgnored(source);
    expect(await pollIgnored(source)).toEqual([0, 50, 90]);
    expect(new Set(plant.events())).toEqual(new Set(['modbus.silent', 'modbus.silent_over']));
  });
});

describe('Modbus device that stops responding', () => {
  it('keeps the values of its earlier responses', async () => {
    device.respond = (request) => (request.address >= 50 ? undefined : device.read(request));
    const source = await open(holding([0, 1, 50, 51, 90]), `, timeout: ${TIMEOUT_MS}ms`);
    const started = plant.start(source);
    await until(() => device.requests.length === 2);
    await plant.clock.advance(TIMEOUT_MS);
    expect(read(await started)).toEqual([0, 1]);
    expect(device.taken()).toEqual(['3: 0+2', '3: 50+2']);
    expect(source.status).toMatchObject({
      problem: 'no response within 3000 ms',
      hint: expect.stringContaining('`pause`'),
      errors: 1,
    });
  });

  it('does not return a late response as a later value', async () => {
    let late: DeviceRequest | undefined;
    device.respond = (request) => {
      if (late === undefined) {
        late = request;
        return undefined;
      }
      const first = device.frameOf(late, device.read({ ...late, address: 77 }));
      return { frame: Buffer.concat([first, device.frameOf(request, device.read(request))]) };
    };
    const source = await open(holding([10]), `, timeout: ${TIMEOUT_MS}ms`);
    const started = plant.start(source);
    await until(() => device.requests.length === 1);
    await plant.clock.advance(TIMEOUT_MS);
    expect(read(await started)).toEqual([]);
    await until(() => plant.clock.waiting > 0);
    await plant.clock.advance(30_000);
    await until(() => read(source.readings as never).length > 0);
    expect(read(source.readings as never)[0]).toBe(10);
    expect(new Set(device.requests.map(({ connection }) => connection))).toEqual(new Set([1]));
    expect(plant.events()).toEqual(['modbus.silent', 'modbus.silent_over']);
  });

  it('is not logged, but counted, if it loses every third request', async () => {
    let requests = 0;
    device.respond = (request) => (++requests % 3 === 0 ? undefined : device.read(request));
    const source = await open(holding([10]), `, timeout: ${TIMEOUT_MS}ms`);
    source.running.start();
    while (requests < 100) await plant.clock.advance(1_000);
    expect(read(source.readings as never).length).toBeGreaterThan(50);
    expect(plant.events()).toEqual([]);
    expect(source.status.errors).toBeGreaterThan(30);
  });
});

const FRAMES = {
  'the wrong unit': '02030400000007',
  'the wrong function code': '01040400000007',
  'too few registers': '0103040000',
  'too many registers': '010304000000070000',
  'only a unit number': '01',
  'an exception without its code': '0183',
  'a byte count that exceeds the frame': '0103fa00000007',
  'a byte count of fewer registers': '01030200000007',
};

/** Response frame with this unit number and PDU, in hexadecimal digits. */
function frameWith(hex: string): ScriptedDevice['respond'] {
  const [unit, ...pdu] = Buffer.from(hex, 'hex');
  return ({ transaction }) => ({ frame: device.frameOf({ unit: unit!, transaction }, Buffer.from(pdu)) });
}

describe('Modbus device that sends invalid responses', () => {
  it.each(Object.entries(FRAMES))('is reported if a frame contains %s', async (_, frame) => {
    device.respond = frameWith(frame);
    const source = await open({ counter: 'register: holding 10, type: uint32' });
    expect(read(await plant.start(source))).toEqual([]);
    expect(source.status).toMatchObject({
      connected: false,
      problem: expect.stringMatching(/^invalid response/),
      errors: 3,
    });
    expect(plant.events()).toEqual(['modbus.invalid_response']);
  });

  it('is reported with both unit numbers and frames, and is read with `any_unit`', async () => {
    device.respond = (request) => ({ frame: device.frameOf({ ...request, unit: 255 }, device.read(request)) });
    const source = await open(holding([10]));
    await plant.start(source);
    expect(source.status.problem).toBe('invalid response (unit 255 instead of 1)');
    expect(source.status.hint).toContain('`any_unit: true`');
    const { sent, received } = plant.logged[0] as unknown as { sent: string; received: string };
    expect([sent.slice(4), received.slice(4)]).toEqual(['00000006' + '0103000a0001', '00000005' + 'ff0302000a']);
    await source.running.stop();
    const tolerant = await open(holding([10]), ', any_unit: true');
    expect(await plant.start(tolerant)).toEqual({ v10: 10 });
    expect(tolerant.status).toMatchObject({ connected: true, errors: 0 });
  });

  it('is reported with both transaction numbers, and is read with `framing: unnumbered`', async () => {
    const unnumbered: ScriptedDevice['respond'] = (request) => ({
      frame: device.frameOf({ ...request, transaction: 0 }, device.read(request)),
    });
    device.respond = unnumbered;
    const source = await open(holding([10]));
    source.running.start();
    while (source.status.problem === undefined) await plant.clock.advance(TIMEOUT_MS / 3);
    expect(source.status.problem).toMatch(/^invalid response \(transaction 0 instead of \d\)$/);
    expect(source.status.hint).toContain('`framing: unnumbered`');
    await source.running.stop();
    // A late response could not be distinguished from the next one.
    const opened = device.opened;
    let isLost = true;
    device.respond = (request) => {
      const response = isLost ? undefined : unnumbered(request);
      isLost = false;
      return response;
    };
    const tolerant = await open(holding([10, 150]), ', framing: unnumbered');
    tolerant.running.start();
    while (!tolerant.readings.includes(150)) await plant.clock.advance(TIMEOUT_MS / 3);
    expect(read(tolerant.readings as never)).toEqual([10, 150]);
    expect(device.opened - opened).toBe(2);
  });

  it('is retried at increasing intervals of up to one minute, and is reported as restored', async () => {
    device.respond = frameWith(FRAMES['the wrong unit']);
    const source = await open(holding([10]));
    await plant.start(source);
    for (let polls = 0; polls < 60; polls++) await plant.poll(source);
    const tried = [...new Set(device.requests.map(({ atMs }) => atMs))];
    expect(Math.max(...tried.slice(1).map((atMs, index) => atMs - tried[index]!))).toBe(MINUTE_MS);
    device.respond = (request) => device.read(request);
    while (!source.status.connected) await plant.poll(source);
    expect(source.readings.at(-1)).toBe(10);
    expect(source.status.problem).toBeUndefined();
    expect(plant.events()).toEqual(['modbus.invalid_response', 'modbus.invalid_response_over']);
  });

  it('is still read if other responses are valid', async () => {
    const invalid = frameWith(FRAMES['the wrong unit']);
    device.respond = (request) => (request.address === 10 ? invalid(request) : device.read(request));
    const source = await open(holding([10, 150]));
    expect(read(await plant.start(source))).toEqual([150]);
    expect(source.status).toMatchObject({
      connected: true,
      problem: expect.stringMatching(/^plc v10 \(holding 10\): invalid response/),
    });
    expect(read(await plant.poll(source))).toEqual([150]);
  });

  it('is read again on a new connection after line noise', async () => {
    let noise = 2;
    const invalid = frameWith(FRAMES['too few registers']);
    device.respond = (request) => (noise-- > 0 ? invalid(request) : device.read(request));
    const source = await open(holding([10]));
    expect(read(await plant.start(source))).toEqual([10]);
    expect([device.opened, device.mostOpen, source.status.errors]).toEqual([3, 1, 2]);
    expect(plant.events()).toEqual([]);
  });

  it.each([
    ['an endless frame', Buffer.alloc(100_000, 1), 'not a Modbus TCP frame'],
    ['a serial frame', Buffer.from('01030400000007bbf1', 'hex'), 'not a Modbus TCP frame'],
    ['a frame beyond the protocol limit', Buffer.from('000100000fff0103', 'hex'), 'not a Modbus TCP frame'],
  ])('is reported with a hint about `framing` if it sends %s', async (_, frame, problem) => {
    device.respond = () => ({ frame });
    const source = await open(holding([10]));
    await plant.start(source);
    expect(source.status.problem).toBe(`invalid response (${problem})`);
    expect(source.status.hint).toContain('`framing: rtu`');
  });

  it('is disconnected if it sends more than two frames', async () => {
    const other = device.frameOf({ unit: 1, transaction: 0xfff0 }, Buffer.alloc(200));
    device.respond = () => ({ frame: Buffer.concat([other, other, other]) });
    const source = await open(holding([10]));
    await plant.start(source);
    expect(source.status.problem).toBe('invalid response (too long)');
  });
});

describe('Modbus host that forwards serial frames', () => {
  const openSerial = async (registers: Record<string, string>, members = '') => {
    device = await plant.device(true);
    return await plant.open(`${at(device)}, framing: rtu${members}`, registers);
  };

  it('is read in all tables, with exceptions', async () => {
    const source = await openSerial({ a: 'register: holding 300', b: 'register: coil 5', c: 'register: input 7' });
    device.missing.add(7);
    expect(await plant.start(source)).toMatchObject({ a: 300, b: 1, c: expect.stringContaining('exception 2') });
  });

  it.each<[string, (frame: Buffer, other: Buffer) => [first: Buffer, second?: Buffer]]>([
    [
      'noise and a frame of another unit precede the response',
      (frame, other) => [Buffer.of(0, 0xff, ...other, ...frame)],
    ],
    ['a frame arrives in parts', (frame) => [frame.subarray(0, 3), frame.subarray(3)]],
    ['it repeats each response', (frame) => [Buffer.of(...frame, ...frame)]],
  ])('is read if %s', async (_, partsOf) => {
    const source = await openSerial(holding([10, 150]));
    device.respond = (request) => {
      const other = device.frameOf({ unit: 9, transaction: 0 }, device.read({ ...request, address: 66 }));
      const [frame, second] = partsOf(device.frameOf(request, device.read(request)), other);
      const [socket] = device.sockets;
      if (second) setImmediate(() => socket!.write(second));
      return { frame };
    };
    for (const polled of [await plant.start(source), await plant.poll(source)]) {
      expect(polled).toEqual({ v10: 10, v150: 150 });
    }
    expect(device.opened).toBe(1);
  });

  it('is reported if the checksum is wrong', async () => {
    const source = await openSerial(holding([10]));
    device.respond = (request) => {
      const frame = device.frameOf(request, device.read(request));
      frame[4]! ^= 1;
      return { frame };
    };
    expect(await plant.start(source)).toEqual({ v10: 'invalid response (wrong checksum)' });
    expect(source.status.errors).toBe(3);
  });

  it('is reported if only another unit responds', async () => {
    const source = await openSerial(holding([10]), `, timeout: ${TIMEOUT_MS}ms`);
    device.respond = (request) => ({ frame: device.frameOf({ unit: 2, transaction: 0 }, device.read(request)) });
    const started = plant.start(source);
    for (let tries = 1; tries <= 3; tries++) {
      await until(() => device.requests.length === tries);
      await plant.clock.advance(0);
      await plant.clock.advance(TIMEOUT_MS);
    }
    expect(await started).toEqual({ v10: 'invalid response (no complete response within 3000 ms)' });
  });

  it('is reconnected after a missing response, so that a late frame is not mistaken for a later response', async () => {
    const source = await openSerial(holding([10]), `, timeout: ${TIMEOUT_MS}ms`);
    device.respond = (request) => (request.connection === 1 ? undefined : device.read(request));
    const started = plant.start(source);
    await until(() => device.requests.length === 1);
    await plant.clock.advance(TIMEOUT_MS);
    await started;
    await until(() => device.sockets.size === 0);
    await plant.clock.advance(30_000);
    await until(() => source.readings.includes(10));
    expect(device.requests.at(-1)!.connection).toBe(2);
  });
});
