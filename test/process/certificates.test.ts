/** Certificates that end soon, or have ended, of listeners and of brokers: where people look, in words. */
import { execFile, execFileSync } from 'node:child_process';
import { join } from 'node:path';
import { afterEach, beforeEach, describe, expect, it } from 'vitest';
import { freePort } from '../../src/base/port-claim.ts';
import { Sandbox } from '../../src/sandbox/sandbox.ts';
import { Mosquitto } from '../broker/mosquitto.ts';
import { AgentProcess } from './agent-process.ts';

const CLI = join(import.meta.dirname, '../../src/main.ts');
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

/** A certificate of 127.0.0.1 that signs itself, in the folder of the agent; `begins`: an offset of faketime. */
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

/** In one line, whatever it exits with. */
const doctor = () =>
  new Promise<string>((resolve) => {
    execFile(process.execPath, [CLI, 'doctor', '--config', agent.config], (_, stdout) => {
      resolve(stdout.replaceAll(/\s+/g, ' '));
    });
  });

describe('a certificate', () => {
  it('that ends in three days is named in the notes, the metrics, the status and by the doctor, running or not', async () => {
    const soon = makeCertificate('soon', 3);
    const later = makeCertificate('later', 90);
    const env = {
      INGEST_LISTEN: `127.0.0.1:${await freePort()}`,
      INGEST_TLS_CERT: soon.cert,
      INGEST_TLS_KEY: soon.key,
      INGEST_TOKEN: 'a-token-of-more-than-sixteen-letters',
    };
    write(await startBroker(later), later.cert, env);
    expect(await doctor()).toContain('the certificate of ingest expires in 2 days');
    await agent.start();
    await agent.until(() => agent.logged('broker.connected').length > 0, 'the broker is connected');
    const { certificates } = (await agent.status()) as { certificates: { use: string; expires: string }[] };
    expect(certificates.map(({ use }) => use)).toEqual(['ingest', 'source line']);
    const days =
      (await agent.metric('tagferry_certificate_expiry_timestamp_seconds{use="source line"}')) - Date.now() / 1000;
    expect(Math.round(days / 86_400)).toBe(90);
    const { notes } = JSON.parse((await agent.call(agent.ops, '/healthz')).text) as { notes: string[] };
    expect(notes).toEqual([expect.stringContaining('the certificate of ingest expires in 2 days')]);
    expect(await doctor()).toContain('the certificate of ingest expires in 2 days');
    expect(await doctor()).toContain('the certificate of source line expires in 89 days');
  });

  it('of a broker that expired yesterday is named in words, with what to do', async () => {
    const expired = makeCertificate('expired', 8, '-228h');
    write(await startBroker(expired), expired.cert, {});
    await agent.start();
    await agent.until(() => agent.logged('broker.away').length > 0, 'the broker is away');
    expect(agent.logged('broker.away')[0]).toMatchObject({
      code: 'broker.certificate',
      error: 'the certificate of the broker has expired',
      hint: expect.stringContaining('renew the certificate of the broker'),
    });
    const { sources } = (await agent.status()) as { sources: { problem: string }[] };
    expect(sources[0]!.problem).toBe('the certificate of the broker has expired');
    expect(await doctor()).toContain('the certificate of source line expired yesterday');
  });
});
