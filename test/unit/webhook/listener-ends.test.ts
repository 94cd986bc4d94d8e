import { afterEach, beforeEach, describe, expect, it, vi } from 'vitest';
import { sign } from '../../../src/webhook/signature.ts';
import { ManualClock } from '../doubles/manual-clock.ts';
import { anEvent, Listening, SECRET, until } from './parts/listening.ts';
import { RawConnection, requestText } from './parts/raw-requests.ts';

let at: Listening;
let connections: RawConnection[];
beforeEach(() => {
  at = new Listening();
  connections = [];
});
afterEach(async () => {
  for (const { socket } of connections) socket.destroy();
  await at.stop();
});

function open(text: string): RawConnection {
  const connection = new RawConnection(at.port).write(text);
  connections.push(connection);
  return connection;
}

function delivery(body: string, headers: Record<string, string | number> = {}): string {
  const own = { 'Content-Length': Buffer.byteLength(body), 'X-Hub-Signature-Sha256': sign(Buffer.from(body), SECRET) };
  return requestText('POST /webhook', { ...own, ...headers }, body);
}

const refusals = () =>
  at.logged.text
    .split('\n')
    .filter((line) => line.includes('webhook.rejected'))
    .map((line) => JSON.parse(line) as { reason: string; why?: string; count: number });

describe('incomplete request', () => {
  it('is counted as aborted', async () => {
    await at.start();
    const broken = open(delivery(anEvent(), { 'Content-Length': 5_000 }));
    await until(() => broken.socket.bytesWritten > 0);
    broken.socket.end();
    await broken.closed;
    await until(() => at.rejected.includes('aborted'));
    expect(at.rejected.toSorted()).toEqual(['aborted', 'malformed']);
    expect(refusals().toSorted((a, b) => (a.reason < b.reason ? -1 : 1))).toMatchObject([
      { reason: 'aborted', count: 1 },
      { reason: 'malformed', count: 1, why: 'HPE_INVALID_EOF_STATE' },
    ]);
    expect(refusals().find(({ reason }) => reason === 'aborted')).not.toHaveProperty('why');
  });

  it('is not reported as malformed if the sender resets the connection', async () => {
    await at.start();
    const { socket } = open('POST /hook HTTP/1.1\r\nHost: localhost\r\n');
    await until(() => socket.bytesWritten > 0);
    socket.resetAndDestroy();
    const next = open('no HTTP\r\n\r\n');
    await next.answers();
    expect(refusals()).toMatchObject([{ reason: 'malformed', why: 'HPE_INVALID_METHOD', count: 1 }]);
  });

  it('is reported as malformed if it is not HTTP', async () => {
    await at.start();
    const garbage = open('no HTTP\r\n\r\n');
    expect(await garbage.answers()).toEqual([
      { status: '400 Bad Request', headers: { connection: 'close', 'content-length': '0' }, body: '' },
    ]);
    expect(at.rejected).toEqual(['malformed']);
    expect(refusals()).toMatchObject([{ reason: 'malformed', why: 'HPE_INVALID_METHOD', count: 1 }]);
  });
});

describe('request body memory', () => {
  it('is limited, with a 503 response above the limit, and released after each request', async () => {
    await at.start({ limits: { bytesUnderWay: 4_000, bodyBytes: 3_500 } });
    const sized = (bytes: number) => anEvent({ padding: 'x'.repeat(bytes) });
    const statusOf = async (text: string) => (await open(text).answers())[0]!.status.slice(0, 3);
    const tooMuch = await open(delivery(sized(3_200))).answers();
    expect(tooMuch).toEqual([
      {
        status: '503 Service Unavailable',
        headers: {
          'content-type': 'application/json',
          connection: 'close',
          'content-length': '17',
          'retry-after': '1',
        },
        body: '{"error":"rate"}\n',
      },
    ]);
    const statuses: string[] = [];
    for (let round = 0; round < 4; round++) {
      statuses.push(await statusOf(delivery(sized(2_500))));
      statuses.push(await statusOf(delivery(sized(2_500), { 'X-Hub-Signature-Sha256': 'sha256=00' })));
    }
    expect(statuses.join(' ')).toBe('204 401 204 401 204 401 204 401');
    expect(at.inbox.list()).toHaveLength(4);
  });
});

describe('slow event insertion', () => {
  it('keeps event memory reserved until insertion completes, even after a 503', async () => {
    const clock = new ManualClock();
    const disk = Promise.withResolvers<void>();
    at.before = () => disk.promise;
    const MiB = 1024 * 1024;
    await at.start({ limits: { bytesUnderWay: 8 * MiB } }, { clock });
    const deliver = (serial: number) => at.post(anEvent({ padding: `${serial}`.padEnd(1_000_000, 'x') }));
    const timers = vi.spyOn(clock, 'after');
    const inserting = () => timers.mock.calls.filter(([delayMs]) => delayMs === 8_000).length;
    // Large bodies get three quarters of the memory.
    const slow = Array.from({ length: 6 }, (_, serial) => deliver(serial));
    await until(() => inserting() === 6);
    expect(at.batches).toHaveLength(1);
    await clock.advance(8_000);
    expect((await Promise.all(slow)).map(({ status }) => status)).toEqual(Array(6).fill(503));
    expect(at.rejected).toEqual(Array(6).fill('commit'));
    expect([(await deliver(6)).status, at.rejected.at(-1)]).toEqual([503, 'rate']);
    disk.resolve();
    await until(() => at.received.length === 6);
    await until(async () => (await deliver(7)).status === 204);
    expect(at.inbox.list()).toHaveLength(7);
  });
});

describe('slow request bodies', () => {
  it('release their memory for a delivery, largest first', async () => {
    const clock = new ManualClock();
    await at.start({ limits: { bytesUnderWay: 8_000, bodyBytes: 5_000 } }, { clock });
    const sized = (bytes: number) => delivery(anEvent({ padding: 'x'.repeat(bytes) }));
    const statusOf = async (connection: RawConnection) => (await connection.answers()).at(-1)!.status;
    const begin = async (bytes: number) => {
      const body = anEvent({ padding: 'x'.repeat(bytes) });
      const connection = open(delivery(body, { Expect: '100-continue' }).slice(0, -body.length));
      await until(() => connection.text.includes('100 Continue'));
      connection.write(body.slice(0, -5));
      return { connection, end: body.slice(-5) };
    };
    const [large, small] = [await begin(2_800), await begin(1_800)];
    await until(async () => (await statusOf(open(sized(2_000)))) === '503 Service Unavailable');
    await clock.advance(1_000);
    expect(await statusOf(open(sized(2_000)))).toBe('204 No Content');
    expect(await statusOf(large.connection)).toBe('408 Request Timeout');
    small.connection.write(small.end);
    expect(await statusOf(small.connection)).toBe('204 No Content');
  });
});

describe('listener shutdown', () => {
  it('waits for inserts in progress, even after a 503', async () => {
    const clock = new ManualClock();
    const disk = Promise.withResolvers<void>();
    await at.start({ limits: { commitMs: 10 } }, { clock });
    at.before = () => disk.promise;
    const sent = open(delivery(anEvent()));
    await until(() => at.batches.length === 1);
    await clock.advance(10);
    expect((await sent.answers())[0]!.status).toBe('503 Service Unavailable');
    let hasStopped = false;
    const stopped = at.listener!.stop().then(() => {
      hasStopped = true;
    });
    expect((await at.post(anEvent())).status).toBe(503);
    await clock.advance(1);
    expect(hasStopped).toBe(false);
    disk.resolve();
    await stopped;
    expect(at.inbox.list()).toHaveLength(1);
  });
});
