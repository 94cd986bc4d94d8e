/** Three ways in: requests that are acknowledged whole, frames that are acknowledged one by one, lines that nobody acknowledges. */
import { connect, type Socket } from 'node:net';
import { Pool } from 'undici';

/** `count` shares of the readings, one a connection. */
function shares(readings: readonly string[], count: number): string[][] {
  const size = Math.ceil(readings.length / count);
  return Array.from({ length: count }, (_, i) => readings.slice(i * size, (i + 1) * size));
}

/** JSON requests of `perRequest` values; done when each was answered 204. */
export async function feedHttp(url: string, readings: readonly string[], connections: number, perRequest: number) {
  const bodies: string[] = [];
  for (let at = 0; at < readings.length; at += perRequest) {
    bodies.push(`{"values":[${readings.slice(at, at + perRequest).join(',')}]}`);
  }
  const pool = new Pool(url, { connections, pipelining: 1 });
  let next = 0;
  const worker = async () => {
    while (next < bodies.length) {
      const body = bodies[next++]!;
      const headers = { 'content-type': 'application/json' };
      const answer = await pool.request({ path: '/v1/values', method: 'POST', body, headers });
      const text = await answer.body.text();
      if (answer.statusCode !== 204) throw new Error(`answered ${answer.statusCode}: ${text.slice(0, 200)}`);
    }
  };
  await Promise.all(Array.from({ length: connections }, worker));
  await pool.close();
}

function open(port: number): Promise<Socket> {
  return new Promise((resolve, reject) => {
    const socket = connect({ port, host: '127.0.0.1', noDelay: true }, () => resolve(socket));
    socket.once('error', reject);
  });
}

const closed = (socket: Socket) => new Promise((resolve) => socket.once('close', resolve));

/** Lines over TCP; done when the other side has closed, which it does after it has read the last. */
export async function feedLines(port: number, readings: readonly string[], connections: number): Promise<void> {
  const one = async (lines: string[]) => {
    const bytes = Buffer.from(`${lines.join('\n')}\n`);
    const socket = await open(port);
    const gone = closed(socket);
    socket.resume().end(bytes);
    await gone;
  };
  await Promise.all(shares(readings, connections).map(one));
}

const OPEN = 'relp_version=0\nrelp_software=bench\ncommands=syslog';
/** Frames under way on one connection: many times what librelp itself would have. */
const WINDOW = 1024;
const GROUP = 128;

/** Frames over RELP, one value each; done when each was answered `200 OK`. */
export async function feedRelp(port: number, readings: readonly string[], connections: number): Promise<void> {
  await Promise.all(shares(readings, connections).map((lines) => relpSession(port, lines)));
}

async function relpSession(port: number, lines: string[]): Promise<void> {
  const groups: Buffer[] = [];
  for (let at = 0; at < lines.length; at += GROUP) {
    const frames = lines.slice(at, at + GROUP).map((line, i) => `${at + i + 2} syslog ${line.length} ${line}\n`);
    groups.push(Buffer.from(frames.join('')));
  }
  const socket = await open(port);
  const gone = closed(socket);
  await new Promise<void>((resolve, reject) => {
    let rest = '';
    let sent = 0;
    let acknowledged = 0;
    let opened = false;
    const send = () => {
      while (sent * GROUP < Math.min(lines.length, acknowledged + WINDOW - GROUP)) socket.write(groups[sent++]!);
    };
    socket.on('error', reject).on('close', () => reject(new Error('the RELP session ended early')));
    socket.on('data', (chunk) => {
      const answers = (rest + chunk).split('\n');
      rest = answers.pop()!;
      for (const answer of answers) {
        // The answer to `open` has lines of its own: offers, none of them a frame.
        if (/^1 rsp \d+ 200 OK$/.test(answer)) opened = true;
        else if (/^\d+ rsp 6 200 OK$/.test(answer)) acknowledged++;
        else if (answer.includes(' rsp ')) reject(new Error(`RELP answered: ${answer}`));
      }
      if (opened) send();
      if (acknowledged === lines.length) resolve();
    });
    socket.write(`1 open ${OPEN.length} ${OPEN}\n`);
  });
  socket.end(`${lines.length + 2} close 0\n`);
  await gone;
}
