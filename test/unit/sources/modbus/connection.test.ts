import { createServer, type Socket } from 'node:net';
import { afterEach, describe, expect, it } from 'vitest';
import { freePort } from '../../../../src/base/port-claim.ts';
import { openConnection } from '../../../../src/sources/modbus/connection.ts';
import { until } from '../sink-double.ts';

const cleanUps: (() => unknown)[] = [];
afterEach(async () => {
  for (const end of cleanUps.splice(0).reverse()) await end();
});

const FUNCTION = 7;
const ILLEGAL_FUNCTION = 1;
const SILENT_MS = 60_000;

/** A connection to a device that responds to the given functions with an exception, and to no others. */
async function connectionTo({ rejects = [] as number[], framing }: { rejects?: number[]; framing?: 'rtu' } = {}) {
  const device = { functions: [] as number[], ends: [] as string[] };
  const sockets = new Set<Socket>();
  const server = createServer((socket) => {
    sockets.add(socket);
    socket.on('error', (error: NodeJS.ErrnoException) => device.ends.push(error.code!));
    socket.on('end', () => device.ends.push('FIN'));
    socket.on('data', (request) => {
      const code = request[framing === 'rtu' ? 1 : FUNCTION]!;
      device.functions.push(code);
      if (!rejects.includes(code)) return;
      const header = Buffer.from(request.subarray(0, FUNCTION));
      header.writeUInt16BE(3, 4);
      socket.write(Buffer.concat([header, Buffer.of(code | 0x80, ILLEGAL_FUNCTION)]));
    });
  });
  const port = await freePort();
  await new Promise<void>((resolve) => server.listen(port, '127.0.0.1', resolve));
  const connection = await openConnection({
    transport: 'tcp',
    host: '127.0.0.1',
    port,
    ...(framing === undefined ? {} : { framing }),
  });
  cleanUps.push(async () => {
    await connection.close();
    for (const socket of sockets) socket.destroy();
    server.close();
  });
  const abort = new AbortController();
  const write = (guard: () => void = () => {}, timeoutMs = SILENT_MS) =>
    connection.write(1, 100, [5], { timeoutMs, guard, signal: abort.signal });
  return { connection, device, write, abort };
}

describe('Modbus connection', () => {
  it('calls the guard before each of the two functions for a single register', async () => {
    const { device, write } = await connectionTo({ rejects: [6, 16] });
    let calls = 0;
    const guard = () => {
      if (++calls === 2) throw new Error('WRITES is off');
    };
    await expect(write(guard)).rejects.toThrow('WRITES is off');
    expect(device.functions).toEqual([6]);
    await expect(write()).rejects.toMatchObject({ exception: ILLEGAL_FUNCTION });
    expect(device.functions).toEqual([6, 6, 16]);
  });

  it.each([undefined, 'rtu'] as const)('is reset after an unanswered write with the framing %s', async (framing) => {
    const { connection, device, write } = await connectionTo(framing === undefined ? {} : { framing });
    await expect(write(undefined, 50)).rejects.toMatchObject({ failure: 'silent' });
    expect(connection.isOpen).toBe(false);
    await until(() => device.ends.length > 0);
    expect(device.ends).toEqual(['ECONNRESET']);
  });

  it.each(['aborted', 'closed'])('is reset if it is %s during a write', async (how) => {
    const { connection, device, write, abort } = await connectionTo();
    const written = write();
    const failed = expect(written).rejects.toMatchObject({ failure: 'closed' });
    await until(() => device.functions.length > 0);
    if (how === 'aborted') abort.abort();
    else await connection.close();
    await failed;
    await until(() => device.ends.length > 0);
    expect(device.ends).toEqual(['ECONNRESET']);
  });

  it('is closed without a reset after a write that the device rejected', async () => {
    const { connection, device, write } = await connectionTo({ rejects: [6, 16] });
    await expect(write()).rejects.toMatchObject({ failure: 'exception' });
    expect(connection.isOpen).toBe(true);
    await connection.close();
    expect(device.ends).toEqual(['FIN']);
  });
});
