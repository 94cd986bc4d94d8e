import type { Socket } from 'node:net';
import { gzipSync } from 'node:zlib';
import { afterEach, beforeEach, describe, expect, it } from 'vitest';
import { ManualClock } from '../doubles/manual-clock.ts';
import { HostilePlatform, type Manners, NO_CONTENT, WELL_BEHAVED } from './hostile-platform.ts';
import { Plant } from './plant.ts';

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
  await turnUntil(() => plant.buffer.inProgress.size === 0);
  await clock.advance(1_000);
  await stopped;
  await platform.close();
});

/** Advances the clock while sockets are active, until the condition is met. Returns the elapsed clock time. */
async function turnUntil(condition: () => boolean, maxMs = 3_600_000): Promise<number> {
  const startMs = clock.monotonicMs();
  while (!condition()) {
    if (clock.monotonicMs() - startMs > maxMs) throw new Error(`the condition did not hold within ${maxMs} ms`);
    await clock.advance(100);
    await new Promise((resolve) => setTimeout(resolve, 1));
  }
  return clock.monotonicMs() - startMs;
}

const acceptAll = () => ASSETS.flatMap((asset) => plant.accept(asset, asset, VALUES / ASSETS.length));
const whole = (answer: (socket: Socket) => void): Manners => ({ whole: answer });
const sorted = () => platform.bodies.flat().sort((one, other) => one - other);

const CHUNKED = 'HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n';
const says = (text: string): Manners => whole((socket) => void socket.write(text));
const closes = (text: string): Manners => whole((socket) => void socket.end(text));
const sized = (head: string, body: string) => `${head}\r\ncontent-length: ${Buffer.byteLength(body)}\r\n\r\n${body}`;
const drip = (socket: Socket) => {
  socket.write(CHUNKED);
  const timer = setInterval(() => socket.write('1\r\na\r\n'), 5);
  socket.on('close', () => clearInterval(timer));
};
const bomb = gzipSync(Buffer.alloc(4 * 1024 * 1024)).toString('latin1');

/** Responses of servers in place of the platform. None of them is a success. */
const IN_ITS_PLACE: [string, Manners][] = [
  ['sends 200 with a portal page', says(sized('HTTP/1.1 200 OK\r\ncontent-type: text/html', '<h1>Sign in</h1>'))],
  ['sends 200 with errors', says(sized('HTTP/1.1 200 OK', '{"errors":[{"type":"invalid","message":"no"}]}'))],
  ['sends 200 with an empty object', says(sized('HTTP/1.1 200 OK', '{}'))],
  ['sends 201 with a record', says(sized('HTTP/1.1 201 Created', '{"id":1}'))],
  ['sends 202 with errors', says(sized('HTTP/1.1 202 Accepted', '{"errors":[]}'))],
  ['sends 202 without a body', says(sized('HTTP/1.1 202 Accepted', ''))],
  ['sends 207', says(sized('HTTP/1.1 207 Multi-Status', '[{"status":400}]'))],
  ['sends 205', says(sized('HTTP/1.1 205 Reset Content', ''))],
  ['sends 302 to a login page', says(sized('HTTP/1.1 302 Found\r\nlocation: http://127.0.0.1:9/login', ''))],
  ['sends 200 and hangs in the body', says('HTTP/1.1 200 OK\r\ncontent-length: 100\r\n\r\nhalf')],
  ['sends 200 and never begins the body', says('HTTP/1.1 200 OK\r\ncontent-length: 100\r\n\r\n')],
  ['sends 200 and disconnects before the body', closes('HTTP/1.1 200 OK\r\ncontent-length: 100\r\n\r\n')],
  ['sends 200 and disconnects within the body', closes('HTTP/1.1 200 OK\r\ncontent-length: 100\r\n\r\nhalf')],
  ['sends 200 with HTTP/1.0 and closes', closes('HTTP/1.0 200 OK\r\n\r\n')],
  ['sends 200 with HTTP/1.0 and a page', closes('HTTP/1.0 200 OK\r\n\r\n<html>')],
  ['sends 200 and an endless body', whole((socket) => drip(socket))],
  [
    'sends 200 and resets',
    whole((socket) => void socket.write(`${CHUNKED}1\r\na\r\n`, () => socket.resetAndDestroy())),
  ],
  ['sends 200 with an invalid chunk', says(`${CHUNKED}no chunk at all\r\n`)],
  [
    'sends 200 with a compression bomb',
    whole((socket) => void socket.write(sized('HTTP/1.1 200 OK\r\ncontent-encoding: gzip', bomb), 'latin1')),
  ],
  ['sends 404 with a page', says(sized('HTTP/1.1 404 Not Found\r\ncontent-type: text/html', '<h1>No such page</h1>'))],
  ['sends 402 with a page', says(sized('HTTP/1.1 402 Payment', '<h1>Buy another hour</h1>'))],
  ['sends 400 with a page', says(sized('HTTP/1.1 400 Bad Request', '<h1>Your browser sent a request…</h1>'))],
];

describe('server that replaces the platform', () => {
  it.each(IN_ITS_PLACE)('and %s receives no values, and is retried every minute', async (_name, manners) => {
    platform.manners = manners;
    const numbers = acceptAll();
    await turnUntil(() => plant.uplink.snapshot().state === 'away', 600_000);
    expect(plant.uplink.snapshot().outage).toMatchObject({ isForeign: true, reason: expect.stringMatching(/./) });
    expect(plant.buffer.waiting).toBe(VALUES);
    expect(plant.counts).toMatchObject({ delivered: 0, quarantined: 0 });
    expect(plant.holds.heldCount()).toBe(0);
    platform.bodies.length = 0;
    platform.manners = WELL_BEHAVED;
    expect(await turnUntil(() => plant.buffer.waiting === 0, 180_000)).toBeLessThan(75_000);
    expect(sorted()).toEqual(numbers);
    expect(plant.counts).toMatchObject({ delivered: VALUES, quarantined: 0 });
  });

  it('does not cause values to be quarantined while a rejected batch is being split', async () => {
    const page = sized('HTTP/1.1 400 Bad Request', '<h1>Guests sign in here</h1>');
    const refused = sized('HTTP/1.1 400 Bad Request', '{"errors":[{"type":"invalid","message":"no"}]}');
    platform.manners = whole((socket) => {
      const posts = platform.bodies.length;
      socket.write(posts === 1 ? refused : posts === 2 ? NO_CONTENT : page);
    });
    const numbers = plant.accept(1, 1, 8);
    await turnUntil(() => plant.uplink.snapshot().state === 'away', 600_000);
    platform.manners = WELL_BEHAVED;
    await turnUntil(() => plant.buffer.waiting === 0, 180_000);
    expect([...new Set(sorted())]).toEqual(numbers);
    expect(plant.counts).toMatchObject({ delivered: 8, quarantined: 0 });
  });
});

describe('server that responds 204', () => {
  const cases: [string, Manners][] = [
    ['sends more bytes after the response', whole((socket) => void socket.write(`${NO_CONTENT}and more of it`))],
    ['closes the connection without announcing it', closes(NO_CONTENT)],
    ['resets the connection', whole((socket) => void socket.write(NO_CONTENT, () => socket.resetAndDestroy()))],
    [
      'announces the close and closes the connection',
      whole((socket) => void socket.end('HTTP/1.1 204 No Content\r\nconnection: close\r\n\r\n')),
    ],
    [
      'sends informational responses first',
      whole(
        (socket) => void socket.write(`${'HTTP/1.1 103 Early Hints\r\nlink: </x>\r\n\r\n'.repeat(20)}${NO_CONTENT}`),
      ),
    ],
  ];
  it.each(cases)('and %s receives the values once and does not delay other posts', async (_name, manners) => {
    platform.manners = manners;
    const numbers = acceptAll();
    expect(await turnUntil(() => plant.buffer.waiting === 0)).toBeLessThan(20_000);
    numbers.push(...acceptAll());
    expect(await turnUntil(() => plant.buffer.waiting === 0)).toBeLessThan(40_000);
    expect(sorted()).toEqual(numbers);
    expect(plant.counts).toMatchObject({ delivered: 2 * VALUES, quarantined: 0 });
    expect(plant.uplink.snapshot().state).toBe('online');
  });

  it('and writes ten gigabytes is disconnected', async () => {
    let written = 0;
    platform.manners = whole((socket) => {
      const piece = Buffer.alloc(64 * 1024, 'x');
      socket.write(`HTTP/1.1 503 Busy\r\ncontent-length: ${10 * 1024 ** 3}\r\n\r\n`);
      const pour = (): void => {
        while (!socket.destroyed) {
          written += piece.length;
          if (!socket.write(piece)) return void socket.once('drain', pour);
        }
      };
      pour();
    });
    acceptAll();
    await turnUntil(() => plant.uplink.snapshot().state === 'away', 60_000);
    await turnUntil(() => plant.uplink.snapshot().postsInProgress === 0);
    // Kernel buffers of both sides, for four posts.
    expect(written).toBeLessThan(4 * 24 * 1024 * 1024);
  });
});

describe('faulty server', () => {
  const status = (line: string, more = '') =>
    whole((socket) => void socket.write(`HTTP/1.1 ${line}\r\ncontent-length: 0\r\n${more}\r\n`));
  const flood = (socket: Socket) => {
    const timer = setInterval(() => socket.write('HTTP/1.1 102 Processing\r\n\r\n'), 5);
    socket.on('close', () => clearInterval(timer));
  };
  const cases: [string, Manners][] = [
    ['never responds', {}],
    ['sends endless 1xx responses', whole(flood)],
    [
      'switches protocols',
      whole((socket) => void socket.write('HTTP/1.1 101 Switching\r\nupgrade: x\r\nconnection: upgrade\r\n\r\n')),
    ],
    ['hangs in the headers', whole((socket) => void socket.write('HTTP/1.1 204 No Content\r\nx-slow: '))],
    [
      'sends endless headers',
      whole((socket) => void socket.write(`HTTP/1.1 204 No Content\r\n${'x: y\r\n'.repeat(20_000)}`)),
    ],
    ['does not use HTTP', whole((socket) => void socket.end('SSH-2.0-OpenSSH_9.2\r\n'))],
    ['reads the body and closes', whole((socket) => void socket.end())],
    ['resets after the headers', { head: (socket) => void socket.resetAndDestroy() }],
    [
      'sends 503 and hangs in the body',
      whole((socket) => void socket.write('HTTP/1.1 503 Busy\r\ncontent-length: 9\r\n\r\nbu')),
    ],
    ['sends 503 with a Retry-After of years', status('503 Busy', 'retry-after: 999999999\r\n')],
    // The HTTP client treats an unrequested 100 as a connection error.
    ['sends an unrequested 100', whole((socket) => void socket.write(`HTTP/1.1 100 Continue\r\n\r\n${NO_CONTENT}`))],
    ['sends 999', status('999 What')],
  ];
  it.each(cases)('that %s receives the values once after recovery', async (_name, manners) => {
    platform.manners = manners;
    const numbers = acceptAll();
    await turnUntil(() => plant.uplink.snapshot().state === 'away', 600_000);
    expect(plant.buffer.waiting).toBe(VALUES);
    expect(plant.counts).toMatchObject({ delivered: 0, quarantined: 0 });
    platform.bodies.length = 0;
    platform.manners = WELL_BEHAVED;
    // A running trial post may hang until its deadline.
    expect(await turnUntil(() => plant.buffer.waiting === 0, 180_000)).toBeLessThan(95_000);
    expect(sorted()).toEqual(numbers);
    expect(plant.counts).toMatchObject({ delivered: VALUES, quarantined: 0 });
  });

  it('that hangs for one asset has 20 s to respond', async () => {
    const quick = acceptAll();
    await turnUntil(() => plant.buffer.waiting === 0);
    let hung = 0;
    const sockets: Socket[] = [];
    platform.manners = whole((socket) => {
      const isHanging = platform.heads.at(-1)!.startsWith('POST /v1/assets/1/');
      if (isHanging) hung = sockets.push(socket);
      else socket.write(NO_CONTENT);
    });
    const slow = plant.accept(1, 1, 5);
    await turnUntil(() => hung === 1);
    const isPaused = () => plant.uplink.snapshot().pausedAssets.length === 1;
    const others = async (atLeastMs: number, maxMs: number) => {
      const waitedMs = await turnUntil(() => {
        if (plant.buffer.waiting < 50) plant.accept(2, 2);
        return isPaused();
      });
      expect(waitedMs).toBeGreaterThan(atLeastMs);
      expect(waitedMs).toBeLessThan(maxMs);
    };
    await others(19_000, 21_000);
    await turnUntil(() => hung === 2);
    await others(19_000, 21_000);
    platform.manners = WELL_BEHAVED;
    await turnUntil(() => plant.buffer.waiting === 0);
    expect(new Set(sorted())).toEqual(new Set([...Array(plant.accepted).keys()]));
    expect(slow.length + quick.length).toBeLessThan(plant.accepted);
  });

  it.each([301, 302, 303, 307, 308])(
    'that redirects with %d receives no second request and does not cause data loss',
    async (code) => {
      const elsewhere = await new HostilePlatform(clock).open();
      platform.manners = status(
        `${code} Elsewhere`,
        `location: http://127.0.0.1:${elsewhere.port}/v1/assets/1/values\r\n`,
      );
      const numbers = acceptAll();
      await turnUntil(() => plant.uplink.snapshot().state === 'away', 60_000);
      expect(plant.buffer.waiting).toBe(VALUES);
      expect(plant.uplink.snapshot().outage?.code).toBe(String(code));
      expect(elsewhere.connections).toBe(0);
      expect(new Set(platform.heads.map((head) => head.slice(0, 7)))).toEqual(new Set(['POST /v']));
      platform.bodies.length = 0;
      platform.manners = WELL_BEHAVED;
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
  ])(
    'that responds %s before it has read a large body receives the values in smaller posts',
    async (_name, line, then) => {
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
    },
  );
});
