/** The least that can stand behind a post of values: parses it, answers 204, signs what it tells a receiver, and delivers. */
import { createHmac } from 'node:crypto';
import { createServer, request as httpRequest } from 'node:http';
import type { AddressInfo } from 'node:net';

const receiver = process.argv[2]!;

function deliver(values: unknown): void {
  const body = JSON.stringify({ event_type: 'asset_values_created', occurred_at: new Date(), content: { values } });
  const signature = (algorithm: string) => `${algorithm}=${createHmac(algorithm, 'secret').update(body).digest('hex')}`;
  const headers = {
    'content-type': 'application/json',
    'content-length': Buffer.byteLength(body),
    'x-hub-signature-sha256': signature('sha256'),
    'x-hub-signature': signature('sha1'),
  };
  const outgoing = httpRequest(receiver, { method: 'POST', headers, agent: false }, (answer) => answer.resume());
  outgoing.on('error', () => {});
  outgoing.end(body);
}

const server = createServer((request, response) => {
  const chunks: Buffer[] = [];
  request.on('data', (chunk: Buffer) => chunks.push(chunk));
  request.on('end', () => {
    response.writeHead(204).end();
    if (request.method !== 'POST') return;
    const { values } = JSON.parse(Buffer.concat(chunks).toString()) as { values: unknown };
    setImmediate(deliver, values);
  });
});
server.listen(0, '127.0.0.1', () =>
  console.log(`listening http://127.0.0.1:${(server.address() as AddressInfo).port}`),
);
