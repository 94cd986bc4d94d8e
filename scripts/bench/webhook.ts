import { type ChildProcess, spawn } from 'node:child_process';
import { createHmac, timingSafeEqual } from 'node:crypto';
import { once } from 'node:events';
import { mkdtempSync, readFileSync, rmSync } from 'node:fs';
import { createServer } from 'node:http';
import { connect } from 'node:net';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { systemClock } from '../../src/base/clock.ts';
import { openDatabase } from '../../src/base/database.ts';
import { silentLogger } from '../../src/base/logger.ts';
import { Arrivals } from '../../src/webhook/arrivals.ts';
import { Inbox } from '../../src/webhook/inbox.ts';
import { WebhookListener } from '../../src/webhook/listener.ts';
import { sign } from '../../src/webhook/signature.ts';

/**
 * Goal: 500 deliveries per second acknowledged durably on one core. Each server is a separate process and reports its
 * CPU time. The listener and the inbox share one thread here.
 */
const SECRET = 'bench';
const [mode, folder] = process.argv.slice(2);

if (mode === 'serve-bare') await serveBare();
else if (mode === 'serve-tagferry') await serveTagferry(folder!);
else await compare(Number(process.argv[2] ?? 5), Number(process.argv[3] ?? 32));

function announce(port: number): void {
  process.stdout.write(`${port}\n`);
  process.on('SIGUSR2', () => {
    const { user, system } = process.cpuUsage();
    const written = Number(/write_bytes: (\d+)/.exec(readFileSync('/proc/self/io', 'utf8'))?.[1] ?? 0);
    process.stdout.write(`${JSON.stringify({ cpuMs: (user + system) / 1000, written })}\n`);
  });
}

async function serveBare(): Promise<void> {
  const server = createServer((request, response) => {
    const chunks: Buffer[] = [];
    request.on('data', (chunk: Buffer) => chunks.push(chunk));
    request.on('end', () => {
      const expected = createHmac('sha256', SECRET).update(Buffer.concat(chunks)).digest();
      const given = Buffer.from(String(request.headers['x-hub-signature-sha256']).slice(7), 'hex');
      response.writeHead(given.length === 32 && timingSafeEqual(expected, given) ? 204 : 401).end();
    });
  });
  server.listen(0, '127.0.0.1', () => announce((server.address() as { port: number }).port));
}

async function serveTagferry(path: string): Promise<void> {
  const inbox = Inbox.open(openDatabase(join(path, 'inbox.db')), systemClock, 'bench');
  const listener = new WebhookListener(
    {
      listen: { host: '127.0.0.1', port: 0 },
      path: '/webhook',
      acceptSha1: false,
      limits: { requestsPerSecond: 1e9, burst: 1e9 },
    },
    {
      arrivals: new Arrivals({ insertMany: async (events) => inbox.insertMany(events), log: silentLogger() }),
      secrets: () => [SECRET],
      clock: systemClock,
      log: silentLogger(),
    },
  );
  await listener.start();
  announce((listener.address() as { port: number }).port);
}

/** Sends deliveries sequentially. */
async function sendFor(port: number, untilMs: number, next: () => string): Promise<number> {
  const socket = connect(port, '127.0.0.1');
  socket.setNoDelay(true);
  await once(socket, 'connect');
  let count = 0;
  while (systemClock.monotonicMs() < untilMs) {
    const body = next();
    const head = `POST /webhook HTTP/1.1\r\nHost: b\r\nX-Hub-Signature-Sha256: ${sign(Buffer.from(body), SECRET)}\r\n`;
    socket.write(`${head}Content-Length: ${Buffer.byteLength(body)}\r\n\r\n${body}`);
    const [answer] = (await once(socket, 'data')) as [Buffer];
    if (!answer.toString('latin1').startsWith('HTTP/1.1 204')) throw new Error(answer.toString());
    count++;
  }
  socket.destroy();
  return count;
}

async function ask(child: ChildProcess): Promise<{ cpuMs: number; written: number }> {
  child.kill('SIGUSR2');
  const [line] = (await once(child.stdout!, 'data')) as [Buffer];
  return JSON.parse(line.toString());
}

async function measure(kind: string, path: string, seconds: number, senders: number) {
  const child = spawn(process.execPath, [import.meta.filename, kind, path], { stdio: ['ignore', 'pipe', 'inherit'] });
  const [line] = (await once(child.stdout!, 'data')) as [Buffer];
  const port = Number(line.toString());
  let serial = 0;
  const next = () =>
    JSON.stringify({
      event_type: 'threshold_reached',
      occurred_at: '2026-11-21T00:00:00Z',
      content: {
        asset: { id: 881, href: 'https://api.example.com/v1/assets/881' },
        instrumentation: { id: 4711, href: 'https://api.example.com/v1/instrumentations/4711' },
        data: {
          value: serial++,
          key: 'flow',
          timestamp: '2026-11-21T00:00:00Z',
          unit: { code: 'm3h', symbol: 'm³/h' },
        },
        threshold: {
          type: 'high',
          name: 'Inlet high',
          value: 20,
          thresholdable_type: 'Instrumentation',
          value_in_threshold_unit: null,
        },
      },
    });
  await Promise.all(Array.from({ length: senders }, () => sendFor(port, systemClock.monotonicMs() + 500, next)));
  const before = await ask(child);
  const startMs = systemClock.monotonicMs();
  const counts = await Promise.all(
    Array.from({ length: senders }, () => sendFor(port, startMs + seconds * 1000, next)),
  );
  const tookS = (systemClock.monotonicMs() - startMs) / 1000;
  const after = await ask(child);
  child.kill('SIGKILL');
  await once(child, 'exit');
  const count = counts.reduce((sum, one) => sum + one, 0);
  const cpuS = (after.cpuMs - before.cpuMs) / 1000;
  return {
    perSecond: count / tookS,
    perCpuSecond: count / cpuS,
    writtenEach: (after.written - before.written) / count,
  };
}

async function compare(seconds: number, senders: number): Promise<void> {
  const path = mkdtempSync(join(tmpdir(), 'bench-webhook-'));
  try {
    console.log(`${senders} senders, ${seconds} s each; events of about 500 bytes`);
    for (const [name, kind] of [
      ['bare server: verify, respond', 'serve-bare'],
      ['tagferry: verify, commit, respond', 'serve-tagferry'],
    ] as const) {
      const { perSecond, perCpuSecond, writtenEach } = await measure(kind, path, seconds, senders);
      const figures = `${Math.round(perSecond)} /s, ${Math.round(perCpuSecond)} per CPU second`;
      console.log(`${name.padEnd(34)} ${figures}, ${Math.round(writtenEach)} bytes written per event`);
    }
  } finally {
    rmSync(path, { recursive: true });
  }
}
