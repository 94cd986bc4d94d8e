/** Listener and broker certificates that expire soon or have expired, as shown to operators. */
import { execFile, execFileSync } from 'node:child_process';
import { once } from 'node:events';
import { readFileSync } from 'node:fs';
import { request } from 'node:http';
import { createServer } from 'node:https';
import type { AddressInfo } from 'node:net';
import { join } from 'node:path';
import { afterEach, beforeEach, describe, expect, it } from 'vitest';
import { freePort } from '../../../src/base/port-claim.ts';
import { Sandbox } from '../../../src/sandbox/sandbox.ts';
import { AgentProcess } from '../../e2e/harness/agent-process.ts';
import { Mosquitto } from '../../e2e/harness/mosquitto.ts';

const CLI = join(import.meta.dirname, '../../../src/main.ts');
let sandbox: Sandbox;
let broker: Mosquitto;
let agent: AgentProcess;

beforeEach(async () => {
  sandbox = new Sandbox();
  await sandbox.start();
  broker = await Mosquitto.make();
  agent = new AgentProcess(sandbox.url);
});
afterEach(async () => {
  await agent.dispose();
  await broker.dispose();
  await sandbox.stop();
});

/** Self-signed certificate for 127.0.0.1 in the agent folder. `begins` is a faketime offset. */
function makeCertificate(name: string, days: number, begins = '+0'): { cert: string; key: string } {
  const cert = join(agent.config, `${name}.pem`);
  const key = join(agent.config, `${name}.key`);
  const subject = ['-subj', '/CN=127.0.0.1', '-addext', 'subjectAltName=IP:127.0.0.1'];
  const openssl = ['openssl', 'req', '-x509', '-newkey', 'rsa:2048', '-nodes', '-days', String(days)];
  execFileSync('faketime', ['-f', begins, ...openssl, '-keyout', key, '-out', cert, ...subject], { stdio: 'ignore' });
  return { cert, key };
}

async function startBroker({ cert, key }: { cert: string; key: string }): Promise<number> {
  const port = await freePort();
  const plain = `listener ${broker.port} 127.0.0.1\nallow_anonymous true\n`;
  await broker.start(`${plain}listener ${port} 127.0.0.1\ncertfile ${cert}\nkeyfile ${key}`);
  return port;
}

function write(port: number, ca: string, env: Record<string, string>): void {
  const source = `{ mqtt: "mqtts://127.0.0.1:${port}", ca: "${ca}" }`;
  const tags = `sources: { line: ${source} }\ntags: { T: { asset: 881, values: { k: { from: line, topic: t } } } }\n`;
  agent.write(sandbox.url, { tags, env });
}

/** Output on one line, regardless of the exit status. */
const run = (verb: string) =>
  new Promise<string>((resolve) => {
    execFile(process.execPath, [CLI, verb, '--config', agent.config], (_, stdout) => {
      resolve(stdout.replaceAll(/\s+/g, ' '));
    });
  });
const doctor = () => run('doctor');
const status = () => run('status');

describe('certificate check', () => {
  it('reports a listener certificate three days before expiry, with and without a running agent', async () => {
    const soon = makeCertificate('soon', 3);
    const later = makeCertificate('later', 90);
    const env = {
      INGEST_LISTEN: `127.0.0.1:${await freePort()}`,
      INGEST_TLS_CERT: soon.cert,
      INGEST_TLS_KEY: soon.key,
      INGEST_TOKEN: 'a-token-of-more-than-sixteen-letters',
    };
    write(await startBroker(later), later.cert, env);
    expect(await doctor()).toContain('ingest certificate expires in 2 days');
    await agent.start();
    await agent.until(() => agent.logged('broker.connected').length > 0, 'the broker is connected');
    const { certificates } = (await agent.status()) as { certificates: { use: string; expires: string }[] };
    expect(certificates.map(({ use }) => use)).toEqual(['ingest', 'source line']);
    const days =
      (await agent.metric('tagferry_certificate_expiry_timestamp_seconds{use="source line"}')) - Date.now() / 1000;
    expect(Math.round(days / 86_400)).toBe(90);
    const { notes } = JSON.parse((await agent.call(agent.ops, '/healthz')).text) as { notes: string[] };
    expect(notes).toEqual([expect.stringContaining('ingest certificate expires in 2 days')]);
    expect(await doctor()).toContain('ingest certificate expires in 2 days');
    expect(await doctor()).toContain('source line certificate expires in 89 days');
  });

  it('reports every certificate in use: platform, ingest, ops, webhook, and client certificate of a source', async () => {
    const soon = makeCertificate('soon', 3);
    const later = makeCertificate('later', 90);
    const platform = createServer({ cert: readFileSync(soon.cert), key: readFileSync(soon.key) }, (from, to) => {
      const { method, headers } = from;
      const call = request(new URL(from.url!, sandbox.url), { method: method!, headers }, (response) => {
        to.writeHead(response.statusCode!, response.headers);
        response.pipe(to);
      });
      from.pipe(call);
    });
    platform.listen(0, '127.0.0.1');
    await once(platform, 'listening');
    const listen = async (name: string) => ({
      [`${name}_LISTEN`]: `127.0.0.1:${await freePort()}`,
      [`${name}_TLS_CERT`]: soon.cert,
      [`${name}_TLS_KEY`]: soon.key,
    });
    const env = {
      PLATFORM_CA: soon.cert,
      INGEST_TOKEN: 'a-token-of-more-than-sixteen-letters',
      ...(await listen('INGEST')),
      ...(await listen('OPS')),
      ...(await listen('WEBHOOK')),
    };
    const port = await startBroker(later);
    const source = `{ mqtt: "mqtts://127.0.0.1:${port}", ca: "${later.cert}", cert: "${soon.cert}", key: "${soon.key}" }`;
    const tags = `sources: { line: ${source} }\ntags: { T: { asset: 881, values: { k: { from: line, topic: t } } } }\n`;
    agent.write(`https://127.0.0.1:${(platform.address() as AddressInfo).port}`, { tags, env });
    try {
      await agent.start();
      await agent.until(() => agent.logged('session.valid').length > 0, 'the agent is signed in');
      const [found, screen] = [await doctor(), await status()];
      expect(found).toMatch(/warning network\.tls .* The certificate expires soon/);
      for (const use of ['ingest', 'ops', 'webhook', 'source line']) {
        expect(found).toContain(`${use} certificate expires in 2 days`);
        expect(screen).toContain(`${use} certificate expires in 2 days`);
      }
      expect(screen).toContain('platform certificate expires in 2 days');
    } finally {
      platform.close();
      platform.closeAllConnections();
    }
  });

  it('reports a broker certificate that expired yesterday, with a hint', async () => {
    const expired = makeCertificate('expired', 8, '-228h');
    write(await startBroker(expired), expired.cert, {});
    await agent.start();
    await agent.until(() => agent.logged('broker.away').length > 0, 'the broker is unavailable');
    expect(agent.logged('broker.away')[0]).toMatchObject({
      code: 'broker.certificate',
      error: 'the broker certificate has expired',
      hint: expect.stringContaining('renew the broker certificate'),
    });
    const { sources } = (await agent.status()) as { sources: { problem: string }[] };
    expect(sources[0]!.problem).toBe('the broker certificate has expired');
    expect(await doctor()).toContain('source line certificate expired yesterday');
  });
});
