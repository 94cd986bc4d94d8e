import type { Socket } from 'node:net';
import { afterEach, beforeEach, describe, expect, it } from 'vitest';
import { ManualClock } from '../doubles/manual-clock.ts';
import { HostilePlatform, type Manners, NO_CONTENT, POLITE } from './hostile-platform.ts';
import { Plant } from './plant.ts';

/** Posts through the real client to servers that behave badly: bounded time, bounded memory, nothing lost or counted twice. */
const ASSETS = [1, 2, 3];
const VALUES = 30;

let clock: ManualClock;
let platform: HostilePlatform;
let plant: Plant;

beforeEach(async () => {
  clock = new ManualClock(Date.UTC(2026, 10, 21), 1);
  platform = await new HostilePlatform(clock).open();
  plant = new Plant(clock, platform.client);
  await plant.uplink.start();
});
afterEach(async () => {
  const stopped = plant.uplink.stop(0);
  await turnUntil(() => plant.buffer.underWay.size === 0);
  await clock.advance(1_000);
  await stopped;
  await platform.close();
});

/** Lets time pass by the clock and sockets work beside it, until it is so; gives how long it took by the clock. */
async function turnUntil(condition: () => boolean, mostMs = 3_600_000): Promise<number> {
  const startMs = clock.monotonicMs();
  while (!condition()) {
    if (clock.monotonicMs() - startMs > mostMs) throw new Error(`it did not come within ${mostMs} ms`);
    await clock.advance(100);
    await new Promise((resolve) => setTimeout(resolve, 1));
  }
  return clock.monotonicMs() - startMs;
}

const acceptAll = () => ASSETS.flatMap((asset) => plant.accept(asset, asset, VALUES / ASSETS.length));
const whole = (answer: (socket: Socket) => void): Manners => ({ whole: answer });
const sorted = () => platform.bodies.flat().sort((one, other) => one - other);

describe('a server that says 2xx and then', () => {
  const chunked = 'HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n';
  const drip = (socket: Socket) => {
    socket.write(chunked);
    const timer = setInterval(() => socket.write('1\r\na\r\n'), 5);
    socket.on('close', () => clearInterval(timer));
  };
  const cases: [string, Manners][] = [
    ['hangs in the body', whole((socket) => void socket.write('HTTP/1.1 200 OK\r\ncontent-length: 100\r\n\r\nhalf'))],
    ['never begins the body', whole((socket) => void socket.write('HTTP/1.1 200 OK\r\ncontent-length: 100\r\n\r\n'))],
    ['drips for ever', whole((socket) => drip(socket))],
    ['breaks the body off', whole((socket) => void socket.end('HTTP/1.1 200 OK\r\ncontent-length: 100\r\n\r\nhalf'))],
    [
      'resets in the body',
      whole((socket) => void socket.write(`${chunked}1\r\na\r\n`, () => socket.resetAndDestroy())),
    ],
    ['writes nonsense for a body', whole((socket) => void socket.write(`${chunked}no chunk at all\r\n`))],
    ['writes on behind a 204', whole((socket) => void socket.write(`${NO_CONTENT}and more of it`))],
    ['closes the connection without a word', whole((socket) => void socket.end(NO_CONTENT))],
    ['resets the connection', whole((socket) => void socket.write(NO_CONTENT, () => socket.resetAndDestroy()))],
    [
      'had much to say before',
      whole(
        (socket) => void socket.write(`${'HTTP/1.1 103 Early Hints\r\nlink: </x>\r\n\r\n'.repeat(20)}${NO_CONTENT}`),
      ),
    ],
  ];
  it.each(cases)('%s has taken the values, once, and holds nobody up', async (_name, manners) => {
    platform.manners = manners;
    const numbers = acceptAll();
    expect(await turnUntil(() => plant.buffer.waiting === 0)).toBeLessThan(20_000);
    numbers.push(...acceptAll());
    expect(await turnUntil(() => plant.buffer.waiting === 0)).toBeLessThan(40_000);
    expect(sorted()).toEqual(numbers);
    expect(plant.counts).toMatchObject({ delivered: 2 * VALUES, quarantined: 0 });
    expect(plant.uplink.snapshot().state).toBe('online');
  });

  it('writes ten gigabytes is not listened to', async () => {
    let written = 0;
    platform.manners = whole((socket) => {
      const piece = Buffer.alloc(64 * 1024, 'x');
      socket.write(`HTTP/1.1 200 OK\r\ncontent-length: ${10 * 1024 ** 3}\r\n\r\n`);
      const pour = (): void => {
        while (!socket.destroyed) {
          written += piece.length;
          if (!socket.write(piece)) return void socket.once('drain', pour);
        }
      };
      pour();
    });
    const numbers = acceptAll();
    await turnUntil(() => plant.buffer.waiting === 0);
    await turnUntil(() => plant.uplink.snapshot().postsUnderWay === 0);
    expect(sorted()).toEqual(numbers);
    // What the kernel's buffers take of it on both sides, for three posts.
    expect(written).toBeLessThan(3 * 24 * 1024 * 1024);
  });
});

describe('a server that', () => {
  const status = (line: string, more = '') =>
    whole((socket) => void socket.write(`HTTP/1.1 ${line}\r\ncontent-length: 0\r\n${more}\r\n`));
  const flood = (socket: Socket) => {
    const timer = setInterval(() => socket.write('HTTP/1.1 102 Processing\r\n\r\n'), 5);
    socket.on('close', () => clearInterval(timer));
  };
  const cases: [string, Manners][] = [
    ['never answers', {}],
    ['answers 1xx for ever', whole(flood)],
    [
      'switches protocols unasked',
      whole((socket) => void socket.write('HTTP/1.1 101 Switching\r\nupgrade: x\r\nconnection: upgrade\r\n\r\n')),
    ],
    ['hangs in the headers', whole((socket) => void socket.write('HTTP/1.1 204 No Content\r\nx-slow: '))],
    [
      'writes headers without end',
      whole((socket) => void socket.write(`HTTP/1.1 204 No Content\r\n${'x: y\r\n'.repeat(20_000)}`)),
    ],
    ['does not speak HTTP', whole((socket) => void socket.end('SSH-2.0-OpenSSH_9.2\r\n'))],
    ['takes the body and closes', whole((socket) => void socket.end())],
    ['resets at the headers', { head: (socket) => void socket.resetAndDestroy() }],
    [
      'answers 503 and hangs in the body',
      whole((socket) => void socket.write('HTTP/1.1 503 Busy\r\ncontent-length: 9\r\n\r\nbu')),
    ],
    ['answers 503 for years', status('503 Busy', 'retry-after: 999999999\r\n')],
    ['answers 304', status('304 Not Modified')],
    // The HTTP client takes an interim answer that nobody asked for as a fault of the connection.
    ['says 100 unasked', whole((socket) => void socket.write(`HTTP/1.1 100 Continue\r\n\r\n${NO_CONTENT}`))],
    ['answers 999', status('999 What')],
  ];
  it.each(cases)('%s has taken nothing: everything waits, and goes once when it behaves', async (_name, manners) => {
    platform.manners = manners;
    const numbers = acceptAll();
    await turnUntil(() => plant.uplink.snapshot().state === 'away', 600_000);
    expect(plant.buffer.waiting).toBe(VALUES);
    expect(plant.counts).toMatchObject({ delivered: 0, quarantined: 0 });
    platform.bodies.length = 0;
    platform.manners = POLITE;
    // A try that was under way may hang until its deadline of 50 s.
    expect(await turnUntil(() => plant.buffer.waiting === 0, 180_000)).toBeLessThan(125_000);
    expect(sorted()).toEqual(numbers);
    expect(plant.counts).toMatchObject({ delivered: VALUES, quarantined: 0 });
  });

  it.each([301, 302, 303, 307, 308])(
    'redirects with %d is not followed, with or without the token, and discards nothing',
    async (code) => {
      const elsewhere = await new HostilePlatform(clock).open();
      platform.manners = status(
        `${code} Elsewhere`,
        `location: http://127.0.0.1:${elsewhere.port}/v1/assets/1/values\r\n`,
      );
      const numbers = acceptAll();
      await turnUntil(() => plant.uplink.snapshot().state === 'away', 60_000);
      expect(plant.buffer.waiting).toBe(VALUES);
      expect(plant.uplink.snapshot().away?.code).toBe(String(code));
      expect(elsewhere.connections).toBe(0);
      expect(new Set(platform.heads.map((head) => head.slice(0, 7)))).toEqual(new Set(['POST /v']));
      platform.bodies.length = 0;
      platform.manners = POLITE;
      await turnUntil(() => plant.buffer.waiting === 0);
      expect(sorted()).toEqual(numbers);
      expect(elsewhere.connections).toBe(0);
      await elsewhere.close();
    },
  );

  it.each([
    ['413 and closes', '413 Too Large', (socket: Socket) => void socket.end()],
    ['413 and resets', '413 Too Large', (socket: Socket) => void socket.resetAndDestroy()],
    ['413 and reads nothing more', '413 Too Large', (socket: Socket) => void socket.pause()],
    ['400 and resets', '400 Bad', (socket: Socket) => void socket.resetAndDestroy()],
  ])('answers %s before a large body is there gets it in parts', async (_name, line, then) => {
    platform.manners = {
      head(socket, contentLength) {
        if (contentLength <= 20_000) return;
        socket.write(`HTTP/1.1 ${line}\r\ncontent-length: 0\r\nconnection: close\r\n\r\n`, () => then(socket));
      },
      whole: (socket) => void (socket.writable && socket.write(NO_CONTENT)),
    };
    const numbers = [...plant.accept(1, 1, 5_000), ...plant.accept(2, 2, 5)];
    await turnUntil(() => plant.buffer.waiting === 0);
    expect([...new Set(sorted())]).toEqual(numbers);
    expect(plant.counts).toMatchObject({ delivered: 5_005, quarantined: 0 });
  });
});
