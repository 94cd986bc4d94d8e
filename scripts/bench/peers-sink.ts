/**
 * Destination of a race, in a process of its own: an HTTP server that accepts every post, or a TCP server that reads
 * lines. It counts values while they arrive, and parses them only when the parent asks for the distinct ones.
 */
import { createServer as createHttpServer } from 'node:http';
import { createServer as createTcpServer } from 'node:net';

/** Message to the parent, sent ten times per second. */
export interface Arrived {
  values: number;
  /** Time from the first byte to the latest value. */
  seconds: number;
  /** Number of distinct values; only after the parent has sent a message. */
  distinct?: number;
}

const [kind, port] = process.argv.slice(2);
const arrived: Arrived = { values: 0, seconds: 0 };
let firstMs: number | undefined;

function count(bytes: Buffer, needle: string, startMs: number): void {
  let values = 0;
  for (let at = bytes.indexOf(needle); at >= 0; at = bytes.indexOf(needle, at + needle.length)) values++;
  if (values === 0) return;
  firstMs ??= startMs;
  arrived.values += values;
  arrived.seconds = (performance.now() - firstMs) / 1000;
}

const posts: { asset: number; body: Buffer }[] = [];
const TOKEN = JSON.stringify({ access_token: 'a', refresh_token: 'r', token_type: 'Bearer', expires_in: 3600 });

const httpServer = createHttpServer({ keepAliveTimeout: 60_000 }, (request, response) => {
  const startMs = performance.now();
  const chunks: Buffer[] = [];
  request.on('data', (chunk: Buffer) => chunks.push(chunk));
  request.on('end', () => {
    const asset = /\/assets\/(\d+)\/values/.exec(request.url!)?.[1];
    if (asset && request.method === 'POST') {
      const body = Buffer.concat(chunks);
      response.writeHead(204).end();
      posts.push({ asset: Number(asset), body });
      count(body, '"value":', startMs);
    } else {
      // A login. Other calls ignore the body.
      response.writeHead(200, { 'content-type': 'application/json' }).end(TOKEN);
    }
  });
});

const connections: Buffer[][] = [];
const tcpServer = createTcpServer((socket) => {
  const chunks: Buffer[] = [];
  connections.push(chunks);
  socket.on('error', () => {});
  socket.on('data', (chunk) => {
    chunks.push(chunk);
    count(chunk, '\n', performance.now());
  });
});

/** Asset, key and time identify a value. */
function distinctValues(): number {
  const seen = new Set<string>();
  for (const { asset, body } of posts) {
    const { values } = JSON.parse(body.toString()) as { values: { key: string; data: { timestamp: string }[] }[] };
    for (const { key, data } of values) {
      for (const { timestamp } of data) seen.add(`${asset} ${key} ${timestamp}`);
    }
  }
  for (const chunks of connections) {
    for (const line of Buffer.concat(chunks).toString().trimEnd().split('\n')) {
      const { asset, key, timestamp } = JSON.parse(line) as Record<string, unknown>;
      seen.add(`${asset} ${key} ${timestamp}`);
    }
  }
  return seen.size;
}

process.on('message', () => {
  arrived.distinct = distinctValues();
});
process.on('disconnect', () => process.exit());
(kind === 'http' ? httpServer : tcpServer).listen(Number(port), '127.0.0.1', () => process.send!(arrived));
setInterval(() => process.send?.(arrived), 100);
