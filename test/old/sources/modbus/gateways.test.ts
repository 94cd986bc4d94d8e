import { connect, createServer, type Socket } from 'node:net';
import { afterEach, describe, expect, it } from 'vitest';
import { systemClock } from '../../../../src/base/clock.ts';
import { silentLogger } from '../../../../src/base/logger.ts';
import { freePort } from '../../../../src/base/port-claim.ts';
import { Gate } from '../../../../src/sources/intake/gate.ts';
import { ModbusLines } from '../../../../src/sources/modbus/lines.ts';
import { ModbusSource, scanAlone, testModbus } from '../../../../src/sources/modbus/modbus-source.ts';
import { pointsOf } from '../../../../src/sources/points.ts';
import { Peer } from '../../../e2e/harness/modbus-peer.ts';
import { check } from '../../../unit/config/folder.ts';
import { makeIntakeBench, until } from '../../../unit/sources/sink-double.ts';

const cleanUps: (() => unknown)[] = [];
afterEach(async () => {
  for (const end of cleanUps.splice(0).reverse()) await end();
});

async function peerOf(framing: 'tcp' | 'rtu' = 'tcp') {
  const port = await freePort();
  const peer = await (framing === 'tcp' ? Peer.tcp(port) : Peer.rtuOverTcp(port));
  cleanUps.push(() => peer.end());
  return { peer, port };
}

/** Sources as tags.yaml defines them. The values of a tag are the registers given as `key: members`. */
function sourcesOf(sources: Record<string, string>, registers: Record<string, string>) {
  const tags = Object.keys(sources).map((name, at) => {
    const values = Object.entries(registers).map(([key, members]) => `${key}: { from: ${name}, ${members} }`);
    return `  ${name}: { asset: ${900 + at}, values: { ${values.join(', ')} } }\n`;
  });
  const lines = Object.entries(sources).map(([name, members]) => `  ${name}: { ${members} }\n`);
  const { configuration, errors } = check({ 'tags.yaml': `sources:\n${lines.join('')}tags:\n${tags.join('')}` });
  expect(errors).toEqual([]);
  const read = configuration!.tags;
  const { intake, sink, stamps } = makeIntakeBench(read.tags);
  const [clock, log] = [systemClock, silentLogger()];
  const modbusLines = new ModbusLines(clock, log);
  const contexts = [...read.sources.values()].map((source) => {
    const gate = new Gate({ source: source.name, timeFrom: 'source', committer: sink, stamps, clock, log });
    const points = pointsOf(read.tags, source.name, intake);
    return { source, points, gate, clock, log, waitMs: 0, signal: new AbortController().signal } as never;
  });
  const running = contexts.map((context) => new ModbusSource(context, modbusLines));
  for (const source of running) cleanUps.push(() => source.stop());
  const valuesOf = (key: string, at = 0) =>
    sink.stored.filter(({ address }) => address === `${900 + at}//${key}/`).map(({ value }) => value);
  return { running, contexts, valuesOf, only: running[0]!, context: contexts[0]! };
}

const COUNTER = { counter: 'register: holding 10, type: uint32' };

describe('Modbus gateway that ignores requests soon after a response', () => {
  it('is polled without losses if the sources set a pause', async () => {
    const { peer, port } = await peerOf();
    await peer.configure({ gap: 0.02 });
    const members = (unit: number) => `modbus: "tcp://127.0.0.1:${port}", unit: ${unit}, every: 100ms, timeout: 500ms`;
    // The pause applies to all requests to the host, even those of other sources.
    const { running, valuesOf } = sourcesOf({ a: `${members(1)}, pause: 30ms`, b: members(2) }, COUNTER);
    for (const source of running) source.start();
    await until(() => valuesOf('counter').length >= 10 && valuesOf('counter', 1).length >= 10);
    expect(peer.ignored).toBe(0);
    expect(running.map((source) => source.state().errors)).toEqual([0, 0]);
  });

  it('is reported with a hint about the pause', async () => {
    const { peer, port } = await peerOf();
    await peer.configure({ gap: 60 });
    const registers = { a: 'register: holding 100', b: 'register: holding 150' };
    const { context } = sourcesOf({ plc: `modbus: "tcp://127.0.0.1:${port}", timeout: 100ms` }, registers);
    const [, second] = await testModbus(context);
    expect(second).toMatchObject({ problem: 'no response within 100 ms', hint: expect.stringContaining('`pause`') });
  });
});

describe('Modbus host that forwards serial line frames', () => {
  it('is read with `framing: rtu`', async () => {
    const { peer, port } = await peerOf('rtu');
    const registers = { ...COUNTER, single: 'register: holding 150', missing: 'register: holding 250' };
    const members = `modbus: "tcp://127.0.0.1:${port}", unit: 3, every: 50ms, framing: rtu`;
    const { only, valuesOf } = sourcesOf({ plc: members }, registers);
    only.start();
    await until(() => valuesOf('counter').length >= 5);
    expect(valuesOf('single')[0]).toBe(150);
    expect(valuesOf('counter')).toEqual(peer.counted(3).slice(0, valuesOf('counter').length));
    expect(only.state()).toMatchObject({ connected: true, problem: expect.stringContaining('exception 2') });
  });

  it('is reconnected after a missing response, so that a late frame is not mistaken for a later response', async () => {
    const { peer, port } = await peerOf('rtu');
    const members = `modbus: "tcp://127.0.0.1:${port}", every: 20ms, timeout: 100ms, framing: rtu`;
    const { only, valuesOf } = sourcesOf({ plc: members }, COUNTER);
    only.start();
    await until(() => valuesOf('counter').length > 0);
    await peer.configure({ unit: 1, delay: 0.3 });
    await until(() => only.state().connected === false);
    await peer.configure({ unit: 1 });
    const before = valuesOf('counter').length;
    await until(() => valuesOf('counter').length > before + 3);
    expect(peer.connections.length).toBeGreaterThan(1);
    const values = valuesOf('counter');
    expect(values).toEqual([...new Set(values)].toSorted((a, b) => a - b));
  });

  it('is disconnected if it sends more than one frame', async () => {
    const port = await hostThatSends(Buffer.alloc(600, 1));
    const { context } = sourcesOf({ plc: `modbus: "tcp://127.0.0.1:${port}", framing: rtu` }, COUNTER);
    expect(await testModbus(context)).toMatchObject([{ problem: 'invalid response (too long)' }]);
  });

  it('is reported with a hint about `framing` if it is read as Modbus TCP', async () => {
    // Response of unit 1: two registers with their checksum.
    const port = await hostThatSends(Buffer.from('01030400000007bbf1', 'hex'));
    const { context } = sourcesOf({ plc: `modbus: "tcp://127.0.0.1:${port}", timeout: 1s` }, COUNTER);
    expect(await testModbus(context)).toMatchObject([
      { problem: 'invalid response (not a Modbus TCP frame)', hint: expect.stringContaining('`framing: rtu`') },
    ]);
  });
});

/** A host that sends these bytes in response to any request. */
async function hostThatSends(bytes: Buffer): Promise<number> {
  const sockets = new Set<Socket>();
  const server = createServer((socket) => {
    sockets.add(socket);
    socket.on('error', () => {}).on('data', () => socket.write(bytes));
  });
  const port = await freePort();
  await new Promise<void>((resolve) => server.listen(port, '127.0.0.1', resolve));
  cleanUps.push(() => {
    for (const socket of sockets) socket.destroy();
    server.close();
  });
  return port;
}

describe('Modbus device that limits registers per request', () => {
  it('is read in requests of at most `max_registers`', async () => {
    const { peer, port } = await peerOf();
    // The device ignores longer requests, so the agent cannot learn the limit from an exception.
    await peer.configure({ unit: 1, max_count: 8 });
    const registers = Object.fromEntries(
      Array.from({ length: 20 }, (_, at) => [`v${at}`, `register: holding ${100 + at}`]),
    );
    const members = `modbus: "tcp://127.0.0.1:${port}", timeout: 300ms, max_registers: 8`;
    const { context } = sourcesOf({ plc: members }, registers);
    const tested = await testModbus(context);
    expect(tested.map((one) => ('raw' in one ? one.raw : one.problem))).toEqual(
      Array.from({ length: 20 }, (_, at) => 100 + at),
    );
    expect(peer.responses.map(({ count }) => count)).toEqual([8, 8, 4]);
    const found: string[] = [];
    for await (const step of scanAlone(context, ['holding 100-119']))
      if ('found' in step) found.push(step.found.sample);
    expect(found.length).toBe(20);
  });
});

describe('Modbus device that accepts one connection', () => {
  it('can be used by another client between polls with `close_after_poll`', async () => {
    const { peer, port } = await peerOf();
    await peer.configure({ connections: 1 });
    const members = (unit: number) => `modbus: "tcp://127.0.0.1:${port}", unit: ${unit}, every: 200ms`;
    const registers = { ...COUNTER, other: 'register: holding 150' };
    const { running, valuesOf, only } = sourcesOf(
      { a: `${members(1)}, close_after_poll: true`, b: members(2) },
      registers,
    );
    for (const source of running) source.start();
    await until(() => valuesOf('other').length >= 2 && valuesOf('other', 1).length >= 2);
    // One connection per round of polls, closed before the next one opens.
    expect(peer.disconnections).toBeGreaterThan(0);
    expect([Math.max(...peer.connections), peer.refusedConnections]).toEqual([1, 0]);
    await until(() => peer.disconnections === peer.connections.length);
    const client = connect({ host: '127.0.0.1', port });
    cleanUps.push(() => client.destroy());
    await until(() => peer.connections.length > peer.disconnections);
    client.end();
    const before = valuesOf('other').length;
    await until(() => valuesOf('other').length > before);
    expect(only.state().connected).toBe(true);
  });
});

describe('Modbus register with packed values', () => {
  it('can be read as BCD, a bit range or a digit string', async () => {
    const { port } = await peerOf();
    const { context, valuesOf, only } = sourcesOf(
      { plc: `modbus: "tcp://127.0.0.1:${port}"` },
      {
        bcd16: 'register: holding 300, type: bcd16',
        bcd32: 'register: holding 301, type: bcd32',
        no_bcd: 'register: holding 303, type: bcd16',
        bits: 'register: holding 304, bit: 4-11',
        bit: 'register: holding 304, bit: 9',
        digits: 'register: holding 310, type: string, length: 8',
        part: 'register: holding 310, type: string, length: 5',
        text: 'register: holding 314, type: string, length: 4, map: { RUN: 7 }',
        mapped_bits: 'register: holding 304, bit: 4-7, map: { 4: 0, 5: 1 }',
        mapped: 'register: holding 300, map: { 1: 0 }',
        blank: 'register: holding 316, type: string, length: 4',
      },
    );
    const tested = await testModbus(context);
    expect(tested.map((one) => ('raw' in one ? one.raw : one.problem))).toEqual([
      1234,
      123_456,
      'the register does not contain BCD digits',
      0xa5,
      1,
      '00123.50',
      '00123',
      'RUN',
      5,
      0x1234,
      '',
    ]);
    only.start();
    await until(() => valuesOf('digits').length > 0);
    expect([valuesOf('digits')[0], valuesOf('part')[0], valuesOf('text')[0], valuesOf('blank')]).toEqual([
      123.5,
      123,
      7,
      [],
    ]);
    expect([valuesOf('mapped_bits')[0], valuesOf('mapped')]).toEqual([1, []]);
    const scanned: unknown[] = [];
    for await (const step of scanAlone(context, ['holding 310-313'])) {
      if ('found' in step) scanned.push(step.found.members);
    }
    expect(scanned).toEqual([{ register: 'holding 310', type: 'string', length: 8 }]);
  });
});
