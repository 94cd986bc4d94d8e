// Runs inside the machine, whose loopback is unreachable from outside. Reads requests as JSON lines from standard input
// (`{"method","url","body"}`), sends them sequentially, and prints a line for each: its status and text, or the error.
import { request } from 'node:http';
import { createInterface } from 'node:readline';

for await (const line of createInterface({ input: process.stdin })) {
  const { method, url, body } = JSON.parse(line);
  const answer = await ask(method, url, body === undefined ? '' : JSON.stringify(body)).catch(({ message }) => ({
    error: message,
  }));
  process.stdout.write(`${JSON.stringify(answer)}\n`);
}

/** Uses a new connection for each request, because the server may have been killed since the previous one. */
function ask(method, url, body) {
  const headers = body === '' ? {} : { 'content-type': 'application/json', 'content-length': Buffer.byteLength(body) };
  return new Promise((resolve, reject) => {
    const outgoing = request(url, { method, headers, agent: false }, (answer) => {
      let text = '';
      answer.setEncoding('utf8').on('data', (chunk) => {
        text += chunk;
      });
      answer.on('end', () => resolve({ status: answer.statusCode, text }));
      answer.on('error', reject);
    });
    outgoing.setTimeout(60_000, () => outgoing.destroy(new Error('no response within a minute')));
    outgoing.on('error', reject);
    outgoing.end(body);
  });
}
