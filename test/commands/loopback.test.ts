import { once } from 'node:events';
import { connect, createServer } from 'node:net';
import { afterEach, describe, expect, it } from 'vitest';
import { systemClock } from '../../src/base/clock.ts';
import { LoopbackListener } from '../../src/commands/person/loopback.ts';

const stops: (() => Promise<unknown> | unknown)[] = [];
afterEach(async () => {
  for (const stop of stops.splice(0).reverse()) await stop();
});

async function listening(address = 'http://127.0.0.1:0/callback'): Promise<{ listener: LoopbackListener; at: string }> {
  const listener = new LoopbackListener(new URL(address), systemClock);
  stops.push(() => listener.stop());
  return { listener, at: await listener.start() };
}

describe('the listener of a sign-in', () => {
  it('says which address is taken, and how to name another', async () => {
    const other = createServer().listen(0, '127.0.0.1');
    stops.push(() => other.close());
    await once(other, 'listening');
    const { port } = other.address() as { port: number };
    await expect(listening(`http://127.0.0.1:${port}/callback`)).rejects.toMatchObject({
      code: 'person.redirect_port',
      message: `127.0.0.1:${port} cannot be listened on (EADDRINUSE)`,
      hint: expect.stringContaining('--redirect'),
    });
  });

  it('shows its last page whole, and ends though a browser keeps a connection on which it says nothing', async () => {
    const { listener, at } = await listening();
    const silent = connect(Number(new URL(at).port), '127.0.0.1');
    silent.on('error', () => {});
    await once(silent, 'connect');
    const ended = once(silent, 'close');
    const comeBack = listener.wait((url) => url.searchParams.get('state') === 'mine');
    const answer = fetch(`${at}?state=mine`).then(async (response) => ({
      status: response.status,
      text: await response.text(),
    }));
    (await comeBack).respond(true, 'All <done>');
    await listener.stop();
    expect(await answer).toEqual({ status: 200, text: expect.stringContaining('<p>All &lt;done></p>') });
    await ended;
    await expect(fetch(at)).rejects.toThrow();
  });

  it('bounds what is sent to it as every listener does: a head too large is refused, and it goes on', async () => {
    const { listener, at } = await listening();
    const large = await fetch(at, { headers: { 'x-large': 'x'.repeat(20_000) } });
    expect(large.status).toBe(431);
    const comeBack = listener.wait(() => true);
    const answer = fetch(at);
    (await comeBack).respond(false, 'no');
    expect((await answer).status).toBe(400);
  });
});
