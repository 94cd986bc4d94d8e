import { createServer, type Server } from 'node:http';
import type { AddressInfo } from 'node:net';
import { afterEach, describe, expect, it } from 'vitest';
import { recognise } from '../../../src/contract/events.ts';
import { SELF_TEST_BODY, type SelfTestTarget, sendToListener, testWebhook } from '../../../src/webhook/self-test.ts';
import { verifySignature } from '../../../src/webhook/signature.ts';
import { requestBody } from '../doubles/request-body.ts';

let server: Server | undefined;
afterEach(async () => {
  const open = server;
  server = undefined;
  if (open) await new Promise((resolve) => open.close(resolve));
});

/** A target that responds with the status that `status` returns. */
async function target(status: (signature: string | undefined, body: Buffer) => number): Promise<SelfTestTarget> {
  const made = createServer(async (request, response) => {
    const body = await requestBody(request);
    if (!body) return;
    const signature = request.headers['x-hub-signature-sha256']?.toString();
    response.writeHead(status(signature, body), { connection: 'close' }).end();
  });
  server = made;
  await new Promise<void>((resolve) => made.listen(0, '127.0.0.1', resolve));
  const address = made.address() as AddressInfo;
  return { name: 'public', address: 'https://gateway.example', send: sendToListener(address, '/hook', false) };
}

describe('webhook self-test', () => {
  it('passes with 401 for an unsigned body and 204 for a signed body', async () => {
    const right = await target((signature, body) => {
      const verdict = verifySignature({ sha256: signature, sha1: undefined }, body, ['the-secret'], false);
      return verdict.ok ? 204 : 401;
    });
    expect(await testWebhook([right], 'the-secret')).toMatchObject([
      { check: 'unsigned', ok: true, status: 401, next: '' },
      { check: 'signed', ok: true, status: 204, next: '' },
    ]);
    expect(await testWebhook([right], 'another')).toMatchObject([
      { ok: true },
      { check: 'signed', ok: false, status: 401 },
    ]);
  });

  it('fails with a hint if another server or a reverse proxy responds', async () => {
    for (const [status, words] of [
      [200, /reverse proxy/],
      [301, /final address/],
      [404, /path/],
      [413, /1 MiB/],
      [502, /upstream/],
      [503, /webhook register/],
    ] as const) {
      const lines = await testWebhook([await target(() => status)], 'the-secret');
      expect(lines.map((line) => line.ok)).toEqual([false, false]);
      expect(lines[0]!.next).toMatch(words);
      await new Promise((resolve) => server!.close(resolve));
    }
  });

  it('reports an unreachable address once', async () => {
    const gone = await target(() => 204);
    await new Promise((resolve) => server!.close(resolve));
    server = undefined;
    const lines = await testWebhook([gone], 'the-secret');
    expect(lines).toMatchObject([{ ok: false, status: null, message: expect.stringContaining('ECONNREFUSED') }]);
  });

  it('reports a missing secret', async () => {
    const lines = await testWebhook([await target(() => 401)], undefined);
    expect(lines).toMatchObject([{ ok: true }, { check: 'signed', ok: false, status: null }]);
  });

  it('sends an event that matches no rule', () => {
    expect(recognise(JSON.parse(SELF_TEST_BODY.toString()))).toBe('unrecognised');
  });
});
