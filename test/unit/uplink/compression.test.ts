import { gunzipSync, gzipSync } from 'node:zlib';
import { expect, it } from 'vitest';
import type { ValuesCall } from '../../../src/uplink/ports.ts';
import { compressing } from '../../../src/uplink/post.ts';

it('gzip compression preserves the request body and sets Content-Encoding', async () => {
  const calls: ValuesCall[] = [];
  const client = compressing({
    async request(call) {
      calls.push(call);
      return { status: 204, header: () => undefined, redact: String, text: '' };
    },
  });
  const values = Array.from({ length: 500 }, (_, i) => ({
    timestamp: new Date(i * 1000).toISOString(),
    value: i / 10,
  }));
  const body = Buffer.from(JSON.stringify({ values: [{ key: 'flow', data: values }] }));
  const headers = { 'content-type': 'application/json' };
  const signal = new AbortController().signal;
  const answer = await client.request({
    method: 'POST',
    path: '/x',
    body,
    headers,
    kind: 'paid',
    deadlineMs: 90_000,
    statusSuffices: true,
    signal,
  });
  expect(answer.status).toBe(204);
  expect(calls).toEqual([
    {
      method: 'POST',
      path: '/x',
      body: gzipSync(body, { level: 1 }),
      headers: { 'content-type': 'application/json', 'content-encoding': 'gzip' },
      kind: 'paid',
      deadlineMs: 90_000,
      statusSuffices: true,
      signal,
    },
  ]);
  expect(gunzipSync(calls[0]!.body).equals(body)).toBe(true);
  expect(calls[0]!.body.length).toBeLessThan(body.length / 5);
});
