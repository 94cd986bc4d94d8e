import { once } from 'node:events';
import { connect, createServer } from 'node:net';
import { afterEach, describe, expect, it } from 'vitest';
import { systemClock } from '../../../src/base/clock.ts';
import { LoopbackListener } from '../../../src/commands/person/loopback.ts';

const stops: (() => Promise<unknown> | unknown)[] = [];
afterEach(async () => {
  for (const stop of stops.splice(0).reverse()) await stop();
});

async function listening(address = 'http://127.0.0.1:0/callback'): Promise<{ listener: LoopbackListener; at: string }> {
  const listener = new LoopbackListener(new URL(address), systemClock);
  stops.push(() => listener.stop());
  return { listener, at: await listener.start() };
}

describe('sign-in listener', () => {
  it('reports a port that is already in use, and suggests the port option', async () => {
    const other = createServer().listen(0, '127.0.0.1');
    stops.push(() => other.close());
    await once(other, 'listening');
    const { port } = other.address() as { port: number };
    await expect(listening(`http://127.0.0.1:${port}/callback`)).rejects.toMatchObject({
      code: 'person.redirect_port',
      message: `cannot listen on 127.0.0.1:${port} (EADDRINUSE)`,
      hint: expect.stringContaining('--redirect'),
    });
  });

  it('sends its final page completely, and closes even if a browser keeps an idle connection open', async () => {
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

  it('rejects oversized headers and keeps running', async () => {
    const { listener, at } = await listening();
    const large = await fetch(at, { headers: { 'x-large': 'x'.repeat(20_000) } });
    expect(large.status).toBe(431);
    const comeBack = listener.wait(() => true);
    const answer = fetch(at);
    (await comeBack).respond(false, 'no');
    expect((await answer).status).toBe(400);
  });
});
