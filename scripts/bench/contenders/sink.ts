/**
 * The destination, in a process of its own: counts the values that arrive and answers at once. 204 to a post of values,
 * what a search index answers to rsyslog's `_bulk`, a token to whoever signs in.
 * Its parent starts it with `fork` and says `{ expect }`; it answers `{ values, posts, seconds }` while values come,
 * where the seconds run from the first post to the answer that completed what was expected.
 */
import { createServer } from 'node:http';

const [port] = process.argv.slice(2);
const NEEDLE = Buffer.from('"value":');
const TOKEN = JSON.stringify({
  access_token: 'bench',
  token_type: 'bearer',
  expires_in: 660,
  refresh_token: 'bench',
  created_at: 0,
});

export interface Arrived {
  values: number;
  posts: number;
  seconds: number;
}

let expect = Number.POSITIVE_INFINITY;
let firstAt: number | undefined;
const arrived: Arrived = { values: 0, posts: 0, seconds: 0 };

process.on('message', (message: { expect: number }) => {
  expect = message.expect;
});
process.on('disconnect', () => process.exit());

function valuesIn(body: Buffer): number {
  let count = 0;
  for (let at = body.indexOf(NEEDLE); at >= 0; at = body.indexOf(NEEDLE, at + NEEDLE.length)) count++;
  return count;
}

const server = createServer({ keepAliveTimeout: 60_000 }, (request, response) => {
  const startedAt = performance.now();
  const chunks: Buffer[] = [];
  request.on('data', (chunk: Buffer) => chunks.push(chunk));
  request.on('end', () => {
    const values = valuesIn(Buffer.concat(chunks));
    const bulk = request.url!.includes('_bulk');
    if (request.url!.startsWith('/oauth/token'))
      response.writeHead(200, { 'content-type': 'application/json' }).end(TOKEN);
    else if (bulk)
      response.writeHead(200, { 'content-type': 'application/json' }).end('{"took":1,"errors":false,"items":[]}');
    else if (values > 0) response.writeHead(204).end();
    else response.writeHead(200).end('{}');
    if (values === 0) return;
    firstAt ??= startedAt;
    if (arrived.values < expect) arrived.seconds = (performance.now() - firstAt) / 1000;
    arrived.values += values;
    arrived.posts++;
  });
});
server.listen(Number(port), '127.0.0.1', () => process.send!(arrived));
setInterval(() => process.send?.(arrived), 100);
