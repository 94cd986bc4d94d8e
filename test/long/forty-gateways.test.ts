// Long: 6 min
/**
 * Forty agents with separate host names and machine ids, monitored by Debian's Prometheus and Alertmanager using the
 * shipped rules.
 */
import { execFileSync } from 'node:child_process';
import { randomBytes } from 'node:crypto';
import { copyFileSync, readFileSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { freePort } from '../../src/base/port-claim.ts';
import { Sandbox } from '../../src/sandbox/sandbox.ts';
import { Mosquitto } from '../broker/mosquitto.ts';
import { AgentProcess } from '../process/agent-process.ts';
import { until } from '../system/machine.ts';
import { Monitoring } from './monitoring.ts';

const GATEWAYS = 40;
const ASSET = 881;
const PATIENCE_MS = 600_000;
const CONDITION_MS = 240_000;

interface Gateway {
  name: string;
  agent: AgentProcess;
  opsPort: number;
  /** Numbers that the agent accepted, each with its own timestamp. */
  pushed: number;
}

let sandbox: Sandbox;
let broker: Mosquitto;
let gateways: Gateway[];
let monitoring: Monitoring;
let pushing: NodeJS.Timeout;
const START_MS = Date.now();

const plainTags = (name: string) => `tags: { T: { asset: ${ASSET}, values: { ${name}: {} } } }\n`;
const sharedClient = (name: string, client: string) =>
  `sources: { line: { mqtt: "mqtt://127.0.0.1:${broker.port}", version: 3, client_id: ${client} } }\n` +
  `tags: { T: { asset: ${ASSET}, values: { ${name}: {}, m-${name}: { from: line, topic: t } } } }\n`;
const nameOf = (number: number) => `gw-${String(number).padStart(2, '0')}`;
const gateway = (number: number) => gateways[number - 1]!;
const inConfig = ({ agent }: Gateway, name: string) => join(agent.config, name);

beforeAll(async () => {
  sandbox = new Sandbox({ limits: { perUser: 0, perApiKey: 0, perAddress: 0 } });
  await sandbox.start();
  broker = await Mosquitto.make();
  await broker.start();
  gateways = [];
  for (let number = 1; number <= GATEWAYS; number++) {
    const name = nameOf(number);
    const opsPort = await freePort();
    const agent = new AgentProcess(sandbox.url, {
      tags: plainTags(name),
      env: { OPS_LISTEN: `127.0.0.1:${opsPort}`, WEBHOOK_LISTEN: '', POST_INTERVAL: '2s', COMMIT_INTERVAL: '500ms' },
    });
    const machineId = join(agent.folder, 'machine-id');
    writeFileSync(machineId, `${randomBytes(16).toString('hex')}\n`);
    const script = 'hostname "$0"; mount --bind "$1" /etc/machine-id; shift; exec "$@"';
    agent.surroundings = [
      'unshare',
      '--uts',
      '--mount',
      '--propagation',
      'private',
      'sh',
      '-c',
      script,
      name,
      machineId,
    ];
    gateways.push({ name, agent, opsPort, pushed: 0 });
  }
  for (let from = 0; from < GATEWAYS; from += 4) {
    await Promise.all(gateways.slice(from, from + 4).map(({ agent }) => agent.start()));
  }
  pushing = setInterval(() => {
    for (const one of gateways) void push(one);
  }, 1_000);
  monitoring = await Monitoring.start(gateways.map(({ name, opsPort }) => ({ instance: name, port: opsPort })));
}, PATIENCE_MS);

afterAll(async () => {
  clearInterval(pushing);
  await monitoring?.stop();
  await Promise.allSettled(gateways.map(({ agent }) => agent.dispose()));
  await broker?.dispose();
  await sandbox?.stop();
});

/** Pushes the next number until it is acknowledged with 204. */
async function push(one: Gateway): Promise<void> {
  const value = one.pushed;
  const timestamp = START_MS + value;
  const response = await one.agent.push([{ tag: 'T', key: one.name, value, timestamp }]).catch(() => undefined);
  if (response?.status === 204 && one.pushed === value) one.pushed++;
}

/** Acknowledged values that are not on the platform, such as `gw-07 12`. */
const missing = (): string[] =>
  gateways.flatMap(({ name, pushed }) => {
    const stored = new Set(sandbox.values.list(ASSET, name).map(({ value }) => value));
    return Array.from({ length: pushed }, (_, value) => `${name} ${value}`).filter((_, value) => !stored.has(value));
  });

/** Creates a self-signed certificate for the ingest listener, valid for a number of days. */
function makeCertificate(one: Gateway, days: number): void {
  const [cert, key] = ['ingest.pem', 'ingest.key'].map((name) => inConfig(one, name)) as [string, string];
  const subject = ['-subj', '/CN=127.0.0.1', '-addext', 'subjectAltName=IP:127.0.0.1'];
  const options = ['-x509', '-newkey', 'rsa:2048', '-nodes', '-days', String(days), '-keyout', key, '-out', cert];
  execFileSync('openssl', ['req', ...options, ...subject], { stdio: 'ignore' });
}

async function restart({ agent }: Gateway): Promise<void> {
  await agent.end('SIGTERM');
  await agent.start();
}

interface Fault {
  gateway: number;
  /** Alerts that the fault triggers, only on this gateway. */
  alerts: string[];
  cause(one: Gateway): unknown;
  repair(one: Gateway): unknown;
}

const FAULTS: Record<string, Fault> = {
  'agent killed': {
    gateway: 1,
    alerts: ['TagferryDown'],
    cause: ({ agent }) => agent.end('SIGKILL'),
    repair: ({ agent }) => agent.start(),
  },
  'rejected files': {
    gateway: 2,
    alerts: ['TagferryFilesChanged', 'TagferryFilesRefused'],
    cause: (one) => {
      writeFileSync(inConfig(one, 'tags.yaml'), 'tags: { T: { asset: none } }\n');
      one.agent.signal('SIGHUP');
    },
    repair: (one) => {
      writeFileSync(inConfig(one, 'tags.yaml'), plainTags(one.name));
      one.agent.signal('SIGHUP');
    },
  },
  'file edited and not loaded': {
    gateway: 3,
    alerts: ['TagferryFilesChanged'],
    cause: (one) => {
      copyFileSync(inConfig(one, 'tags.yaml'), inConfig(one, 'previous'));
      writeFileSync(inConfig(one, 'tags.yaml'), `# Edited.\n${plainTags(one.name)}`);
    },
    repair: (one) => copyFileSync(inConfig(one, 'previous'), inConfig(one, 'tags.yaml')),
  },
  'certificate valid for three days': {
    gateway: 4,
    alerts: ['TagferryCertificateExpires'],
    cause: async (one) => {
      makeCertificate(one, 3);
      // Its listener requires TLS from now on, so its values come from a source.
      const source = 'sources: { self: { host: true, every: 2s } }\n';
      const values = `${one.name}: {}, load: { from: self, reading: load1 }`;
      writeFileSync(inConfig(one, 'tags.yaml'), `${source}tags: { T: { asset: ${ASSET}, values: { ${values} } } }\n`);
      const env = readFileSync(inConfig(one, 'agent.env'), 'utf8');
      const listener = {
        INGEST_LISTEN: `127.0.0.1:${await freePort()}`,
        INGEST_TLS_CERT: inConfig(one, 'ingest.pem'),
        INGEST_TLS_KEY: inConfig(one, 'ingest.key'),
        INGEST_TOKEN: 'a-token-of-more-than-sixteen-letters',
      };
      const lines = Object.entries(listener).map(([key, value]) => `${key}=${value}\n`);
      writeFileSync(inConfig(one, 'agent.env'), env.replace(/^INGEST_LISTEN=.*\n/m, '') + lines.join(''));
      await restart(one);
    },
    repair: async (one) => {
      makeCertificate(one, 90);
      await restart(one);
    },
  },
  'client id of another agent': {
    gateway: 5,
    alerts: ['TagferryIdentityConflict'],
    cause: (one) => useClient(one, 'shared'),
    repair: (one) => useClient(one, one.name),
  },
  'its original': {
    gateway: 6,
    alerts: ['TagferryIdentityConflict'],
    cause: (one) => useClient(one, 'shared'),
    repair: (one) => useClient(one, one.name),
  },
};

function useClient(one: Gateway, client: string): void {
  writeFileSync(inConfig(one, 'tags.yaml'), sharedClient(one.name, client));
  one.agent.signal('SIGHUP');
}

const EXPECTED = Object.values(FAULTS)
  .flatMap((fault) => fault.alerts.map((alert) => `${alert} ${nameOf(fault.gateway)}`))
  .sort();

describe('forty gateways', { timeout: PATIENCE_MS }, () => {
  it('trigger no alerts if nothing is wrong', async () => {
    await until(
      'all gateways are scraped',
      async () => (await monitoring.query('up == 1')).length === GATEWAYS,
      CONDITION_MS,
    );
    await until(
      'values are delivered by all',
      async () => {
        return (await monitoring.query('tagferry_values_delivered_total > 10')).length === GATEWAYS;
      },
      CONDITION_MS,
    );
    expect(await monitoring.firing()).toEqual([]);
    expect(monitoring.notified(0)).toEqual([]);
  });

  it('trigger and resolve the alerts for each fault, and no others', async () => {
    for (const fault of Object.values(FAULTS)) await fault.cause(gateway(fault.gateway));
    const notifications = () => monitoring.notified(0);
    const fired = EXPECTED.map((alert) => `firing ${alert}`);
    await until(
      'all faults are notified',
      () => fired.every((alert) => notifications().includes(alert)),
      CONDITION_MS,
    ).catch(async () => expect(await monitoring.firing()).toEqual(EXPECTED));
    expect(await monitoring.firing()).toEqual(EXPECTED);
    for (const fault of Object.values(FAULTS)) await fault.repair(gateway(fault.gateway));
    const all = [...fired, ...EXPECTED.map((alert) => `resolved ${alert}`)].sort();
    await until('all are resolved', () => all.every((alert) => notifications().includes(alert)), CONDITION_MS).catch(
      () => {},
    );
    expect(notifications()).toEqual(all);
    expect(await monitoring.firing()).toEqual([]);
  });

  it('send one notification and one resolution for a platform outage, and lose no value', async () => {
    const from = monitoring.notifications.length;
    // A gateway that restarts before the outage has not delivered any values yet.
    await restart(gateway(7));
    await sandbox.goOffline();
    await until('the fleet alert is notified', () => monitoring.notifications.length > from, CONDITION_MS);
    await until(
      'each gateway has its own alert',
      async () => {
        return (
          (await monitoring.query('ALERTS{alertname="TagferryPlatformAway",alertstate="firing"}')).length === GATEWAYS
        );
      },
      CONDITION_MS,
    );
    const severities = (await monitoring.query('ALERTS{alertstate="firing"}')).map(({ metric }) => metric.severity);
    expect(new Set(severities)).toEqual(new Set(['warning']));
    await sandbox.goOnline();
    await until('the outage is resolved', () => monitoring.notifications.at(-1)!.status === 'resolved', CONDITION_MS);
    await until('no alert is firing', async () => (await monitoring.firing()).length === 0, CONDITION_MS);
    clearInterval(pushing);
    await until('no value is missing', () => missing().length === 0, CONDITION_MS).catch(() => {});
    expect(missing()).toEqual([]);
    expect(
      monitoring.notifications
        .slice(from)
        .map(({ status, alerts }) => [status, alerts.map(({ labels }) => labels.alertname)]),
    ).toEqual([
      ['firing', ['TagferryFleetPlatformUnavailable']],
      ['resolved', ['TagferryFleetPlatformUnavailable']],
    ]);
  });
});
