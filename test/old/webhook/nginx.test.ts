import { type ChildProcess, execFileSync, spawn } from 'node:child_process';
import { existsSync, mkdirSync, mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { request } from 'node:https';
import { connect } from 'node:net';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { freePort } from '../../../src/base/port-claim.ts';
import { Sandbox } from '../../../src/sandbox/sandbox.ts';
import { sign } from '../../../src/webhook/signature.ts';
import { anEvent } from '../../unit/webhook/parts/listening.ts';
import { EventPlant, NOTHING_WRONG } from './event-plant.ts';

/** Debian's nginx in front of the agent, with the site of `docs/` except for names, ports and files. */
const SITE = readFileSync(join(import.meta.dirname, '../../../docs/guide/nginx-site.conf'), 'utf8');
const NGINX = ['/usr/sbin/nginx', '/usr/bin/nginx'].find((path) => existsSync(path)) ?? 'nginx';

let folder: string;
let nginx: ChildProcess;
let port: number;
let sandbox: Sandbox;
let plant: EventPlant;
const at = (name: string) => join(folder, name);

function replace(text: string, from: string, to: string): string {
  expect(text).toContain(from);
  return text.replace(from, to);
}

async function startNginx(upstreamPort: number): Promise<void> {
  const curve = ['-newkey', 'ec', '-pkeyopt', 'ec_paramgen_curve:prime256v1', '-nodes', '-days', '2'];
  const names = ['-subj', '/CN=localhost', '-addext', 'subjectAltName=DNS:localhost,IP:127.0.0.1'];
  execFileSync('openssl', ['req', '-x509', ...curve, ...names, '-keyout', at('key.pem'), '-out', at('cert.pem')], {
    stdio: 'ignore',
  });
  let site = replace(SITE, '127.0.0.1:8471', `127.0.0.1:${upstreamPort}`);
  site = replace(site, 'listen 443 ssl', `listen 127.0.0.1:${port} ssl`);
  site = replace(site, 'server_name gateway.example.com;', 'server_name localhost;');
  site = replace(site, '/etc/ssl/certs/gateway.example.com.pem', at('cert.pem'));
  site = replace(site, '/etc/ssl/private/gateway.example.com.key', at('key.pem'));
  mkdirSync(at('temp'));
  const temporary = ['client_body', 'proxy', 'fastcgi', 'uwsgi', 'scgi']
    .map((name) => `${name}_temp_path ${at('temp')}/${name};`)
    .join('\n');
  const user = process.getuid?.() === 0 ? 'user root;\n' : '';
  const around = `${user}daemon off;\nworker_processes 1;\npid ${at('nginx.pid')};\nerror_log ${at('error.log')};\nevents { worker_connections 256; }\n`;
  writeFileSync(at('nginx.conf'), `${around}http {\naccess_log off;\n${temporary}\n${site}\n}\n`);
  nginx = spawn(NGINX, ['-p', folder, '-e', at('error.log'), '-c', at('nginx.conf')], {
    stdio: ['ignore', 'inherit', 'inherit'],
  });
  for (;;) {
    const isUp = await new Promise((resolve) => {
      const probe = connect(port, '127.0.0.1', () => resolve(true)).on('error', () => resolve(false));
      probe.on('connect', () => probe.destroy());
    });
    if (isUp) return;
    if (nginx.exitCode !== null) throw new Error(`nginx ended:\n${readFileSync(at('error.log'), 'utf8')}`);
    await new Promise((resolve) => setTimeout(resolve, 20));
  }
}

beforeAll(async () => {
  folder = mkdtempSync(join(tmpdir(), 'tagferry-nginx-'));
  port = await freePort();
  const upstream = await freePort();
  await startNginx(upstream);
  sandbox = new Sandbox({
    limits: { perUser: 0, perApiKey: 0, perAddress: 0 },
    webhookCa: readFileSync(at('cert.pem'), 'utf8'),
  });
  await sandbox.start();
  plant = await EventPlant.at(sandbox, {
    WEBHOOK_LISTEN: `127.0.0.1:${upstream}`,
    WEBHOOK_URL: `https://localhost:${port}/webhook`,
    PLATFORM_CA: at('cert.pem'),
  });
  await plant.begin();
});
afterAll(async () => {
  await plant?.endStream();
  await plant?.agent.dispose();
  await sandbox?.stop();
  if (nginx && nginx.exitCode === null) {
    const gone = new Promise((resolve) => nginx.once('exit', resolve));
    nginx.kill('SIGTERM');
    await gone;
  }
  rmSync(folder, { recursive: true, force: true });
});

/** Posts through nginx and returns the status, even if the body was not read completely. */
function post(body: Buffer, headers: Record<string, string> = {}, path = '/webhook', method = 'POST'): Promise<number> {
  return new Promise((resolve, reject) => {
    const ca = readFileSync(at('cert.pem'));
    const options = {
      host: 'localhost',
      port,
      path,
      method,
      ca,
      headers: { ...headers, 'content-length': body.length },
    };
    const outgoing = request({ ...options, agent: false }, (answer) => {
      answer.resume();
      resolve(answer.statusCode ?? 0);
    });
    // A rejection may arrive while the body is still being written.
    outgoing.on('error', (error) => setTimeout(() => reject(error), 100));
    outgoing.end(body);
  });
}

const secret = () => sandbox.webhooks()[0]!.secret;
const signed = (body: Buffer) => ({ 'X-Hub-Signature-Sha256': sign(body, secret()) });

describe('webhook listener behind nginx', () => {
  it('responds 204 to a signed delivery and 401 to an unsigned one', async () => {
    const body = Buffer.from(anEvent({ event_type: 'of_another_age' }));
    expect(await post(body, signed(body))).toBe(204);
    expect(await post(body)).toBe(401);
    expect(await post(body, signed(Buffer.from('another')))).toBe(401);
    expect(await plant.agent.metric('tagferry_events_rejected_total{reason="signature_missing"}')).toBe(1);
  });

  it('responds 413 to a body over 1 MiB, and accepts exactly 1 MiB', async () => {
    const most = Buffer.alloc(1024 * 1024, 0x20);
    expect(await post(most, signed(most))).toBe(204);
    const more = Buffer.alloc(1024 * 1024 + 1, 0x20);
    expect(await post(more, signed(more))).toBe(413);
    const huge = Buffer.alloc(20 * 1024 * 1024);
    expect(await post(huge, signed(huge)).catch(() => 413)).toBe(413);
  });

  it('receives only POST requests on the webhook path', async () => {
    const body = Buffer.from(anEvent());
    expect(await post(body, signed(body), '/webhook/')).toBe(404);
    expect(await post(body, signed(body), '/metrics')).toBe(404);
    expect(await post(Buffer.alloc(0), {}, '/webhook', 'GET')).toBe(403);
  });

  it('passes the self-test without a warning', async () => {
    const { status, text } = await plant.ask('webhook/test');
    expect(status).toBe(200);
    const { checks } = JSON.parse(text) as { checks: { target: string; ok: boolean; message: string }[] };
    expect(checks.map(({ target, ok, message }) => [target, ok, message])).toEqual([
      ['listener', true, 'unsigned body: status 401'],
      ['listener', true, 'signed body: status 204'],
      ['public', true, 'unsigned body: status 401'],
      ['public', true, 'signed body: status 204'],
    ]);
    expect(await plant.agent.metric('tagferry_events_rejected_total{reason="self_test"}')).toBe(2);
  });

  it('loses no deliveries while the agent is killed and restarted', async () => {
    plant.stream();
    for (let i = 0; i < 3; i++) {
      await new Promise((resolve) => setTimeout(resolve, 300));
      await plant.kill();
      await new Promise((resolve) => setTimeout(resolve, 200));
      await plant.agent.start();
    }
    await plant.endStream();
    await plant.settle();
    const answers = new Set(sandbox.deliveries().map(({ lastAnswer }) => lastAnswer));
    expect(answers).toEqual(new Set([204]));
    expect(sandbox.deliveries().some(({ attempts }) => attempts > 1)).toBe(true);
    expect(await plant.count()).toEqual(NOTHING_WRONG);
  });
});
