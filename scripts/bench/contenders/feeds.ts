/**
 * Three ways in: requests that are acknowledged whole, frames that are acknowledged one by one, lines that nobody
 * acknowledges. Each makes its bytes first and gives the function that sends them, so that only sending is measured.
 */
import { connect, type Socket } from 'node:net';
import { Pool } from 'undici';

/** `count` shares of the readings, one a connection. */
function shares(readings: readonly string[], count: number): string[][] {
  const size = Math.ceil(readings.length / count);
  return Array.from({ length: count }, (_, i) => readings.slice(i * size, (i + 1) * size));
}

export type Send = () => Promise<void>;

/** JSON requests of `perRequest` values; done when each was answered 204. */
export function httpFeed(url: string, readings: readonly string[], connections: number, perRequest: number): Send {
  const bodies: Buffer[] = [];
  for (let at = 0; at < readings.length; at += perRequest) {
    bodies.push(Buffer.from(`{"values":[${readings.slice(at, at + perRequest).join(',')}]}`));
  }
  return () => postAll(url, bodies, connections);
}

async function postAll(url: string, bodies: Buffer[], connections: number): Promise<void> {
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
export function lineFeed(port: number, readings: readonly string[], connections: number): Send {
  const texts = shares(readings, connections).map((lines) => Buffer.from(`${lines.join('\n')}\n`));
  const one = async (bytes: Buffer) => {
    const socket = await open(port);
    const gone = closed(socket);
    socket.resume().end(bytes);
    await gone;
  };
  return async () => void (await Promise.all(texts.map(one)));
}

const OPEN = 'relp_version=0\nrelp_software=bench\ncommands=syslog';
/**
 * Frames under way on one connection. librelp would have 128; then Nagle's algorithm in the peer's answers and the delayed
 * acknowledgement of TCP here make 40 ms for each window, and the rate would be theirs.
 */
const WINDOW = 16_384;
const GROUP = 128;

/** Frames over RELP, one value each; done when each was answered `200 OK`. */
export function relpFeed(port: number, readings: readonly string[], connections: number): Send {
  const sessions = shares(readings, connections).map((lines) => ({ frames: lines.length, groups: framed(lines) }));
  return async () => void (await Promise.all(sessions.map((session) => relpSession(port, session))));
}

/** The frames of a session, `GROUP` at a time. The first number is taken by `open`. */
function framed(lines: string[]): Buffer[] {
  const groups: Buffer[] = [];
  for (let at = 0; at < lines.length; at += GROUP) {
    const frames = lines.slice(at, at + GROUP).map((line, i) => `${at + i + 2} syslog ${line.length} ${line}\n`);
    groups.push(Buffer.from(frames.join('')));
  }
  return groups;
}

async function relpSession(port: number, { frames, groups }: { frames: number; groups: Buffer[] }): Promise<void> {
  const socket = await open(port);
  const gone = closed(socket);
  await new Promise<void>((resolve, reject) => {
    let rest = '';
    let sent = 0;
    let acknowledged = 0;
    let opened = false;
    const send = () => {
      while (sent * GROUP < Math.min(frames, acknowledged + WINDOW - GROUP)) socket.write(groups[sent++]!);
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
      if (acknowledged === frames) resolve();
    });
    socket.write(`1 open ${OPEN.length} ${OPEN}\n`);
  });
  socket.end(`${frames + 2} close 0\n`);
  await gone;
}
