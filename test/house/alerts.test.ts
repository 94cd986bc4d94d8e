import { execFileSync, spawn, spawnSync } from 'node:child_process';
import { once } from 'node:events';
import { mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { createServer } from 'node:http';
import type { AddressInfo } from 'node:net';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { describe, expect, it, vi } from 'vitest';
import { parse, stringify } from 'yaml';
import { freePort } from '../../src/base/port-claim.ts';

const FOLDER = join(import.meta.dirname, '../../config/monitoring');
const RULES = join(FOLDER, 'tagferry.rules.yml');
const TESTS = join(FOLDER, 'tagferry.rules.test.yml');

interface Rules {
  groups: {
    name: string;
    rules: {
      alert: string;
      expr: string;
      labels: { severity: string; cause?: string };
      annotations: Record<string, string>;
    }[];
  }[];
}

const { groups } = parse(readFileSync(RULES, 'utf8')) as Rules;
const rules = groups.flatMap((group) => group.rules);

interface Tests {
  tests: { name: string; promql_expr_test?: { exp_samples: { labels: string }[] }[] }[];
}

describe('the alert rules', () => {
  it('are rules to Prometheus', () => {
    const said = execFileSync('promtool', ['check', 'rules', RULES], { encoding: 'utf8' });
    expect(said).toContain(`${rules.length} rules found`);
  });

  // Hours of rules in one process: a machine that does much else takes its time for it.
  const PATIENCE = { timeout: 300_000 };
  it('fire on what they are about and not on what only resembles it, as promtool plays it through', PATIENCE, () => {
    const { status, stdout, stderr } = spawnSync('promtool', ['test', 'rules', TESTS], { encoding: 'utf8' });
    expect(`${stdout}${stderr}`).toContain('SUCCESS');
    expect(status).toBe(0);
  });

  it('are each played through in both ways, alone', () => {
    const { tests } = parse(readFileSync(TESTS, 'utf8')) as Tests;
    const fired = (name: string) =>
      tests
        .find((one) => one.name === name)
        ?.promql_expr_test?.flatMap(({ exp_samples }) => exp_samples.map((one) => one.labels));
    for (const { alert } of rules) {
      expect(fired(`${alert} fires`), alert).toEqual([`{alertname="${alert}"}`]);
      expect(fired(`${alert} does not fire`), alert).toEqual([]);
    }
  });

  it('say how urgent it is, which gateway, and what to do', () => {
    for (const { name, rules: ofGroup } of groups) {
      for (const { alert, labels, annotations } of ofGroup) {
        expect(['critical', 'warning'], alert).toContain(labels.severity);
        expect(annotations.summary, alert).toContain(name === 'tagferry' ? '{{ $labels.instance }}' : '{{ $value }}');
        expect(annotations.action, alert).toMatch(/\w{4,}.*\.$/);
      }
    }
  });
});

interface Notification {
  status: string;
  alerts: { status: string; labels: { alertname: string; instance?: string } }[];
}

/** The shipped configuration of Alertmanager in a real one that does not wait, with a receiver that keeps its notifications. */
async function startAlertmanager() {
  const folder = mkdtempSync(join(tmpdir(), 'tagferry-alerts-'));
  const notifications: Notification[] = [];
  const receiver = createServer((request, response) => {
    let text = '';
    request.on('data', (chunk) => {
      text += chunk;
    });
    request.on('end', () => {
      notifications.push(JSON.parse(text) as Notification);
      response.end();
    });
  }).listen(0, '127.0.0.1');
  await once(receiver, 'listening');
  const { port: receiverPort } = receiver.address() as AddressInfo;
  const file = join(folder, 'alertmanager.yml');
  const shipped = readFileSync(join(FOLDER, 'tagferry.alertmanager.yml'), 'utf8');
  const config = parse(shipped.replaceAll(/group_(wait|interval): \w+/g, 'group_$1: 1s')) as {
    receivers: { name: string; webhook_configs?: unknown[] }[];
  };
  for (const one of config.receivers) {
    one.webhook_configs = [{ url: `http://127.0.0.1:${receiverPort}/${one.name}` }];
  }
  writeFileSync(file, stringify(config));
  const listen = `127.0.0.1:${await freePort()}`;
  const options = [`--config.file=${file}`, `--storage.path=${folder}`, `--web.listen-address=${listen}`];
  const child = spawn('prometheus-alertmanager', [...options, '--cluster.listen-address='], { stdio: 'ignore' });
  const isReady = async () => expect((await fetch(`http://${listen}/-/ready`)).ok).toBe(true);
  await vi.waitFor(isReady, { timeout: 60_000, interval: 100 });
  return {
    notifications,
    async send(alerts: { labels: Record<string, string>; endsAt?: string }[]) {
      const body = JSON.stringify(alerts);
      const headers = { 'Content-Type': 'application/json' };
      const { status } = await fetch(`http://${listen}/api/v2/alerts`, { method: 'POST', headers, body });
      expect(status).toBe(200);
    },
    async stop() {
      child.kill();
      await once(child, 'exit');
      receiver.close();
      rmSync(folder, { recursive: true });
    },
  };
}

describe('the example for Alertmanager', () => {
  it('gives one notification if the platform is unavailable for forty gateways, and one when it is back', async () => {
    const alertmanager = await startAlertmanager();
    try {
      const { notifications } = alertmanager;
      const byGateway = rules.filter(({ labels }) => labels.cause === 'platform');
      expect(byGateway.map(({ labels }) => labels.severity)).not.toContain('critical');
      const fleet = {
        labels: { alertname: 'TagferryFleetPlatformUnavailable', job: 'tagferry', severity: 'warning' },
      };
      const single = byGateway.flatMap(({ alert, labels }) =>
        Array.from({ length: 40 }, (_, i) => ({
          labels: { alertname: alert, ...labels, job: 'tagferry', instance: `gw-${i}` },
        })),
      );
      await alertmanager.send([fleet, ...single]);
      await vi.waitFor(() => expect(notifications.length).toBeGreaterThan(0), { timeout: 60_000 });
      const endsAt = new Date().toISOString();
      await alertmanager.send([fleet, ...single].map((alert) => ({ ...alert, endsAt })));
      await vi.waitFor(() => expect(notifications.at(-1)!.status).toBe('resolved'), { timeout: 60_000 });
      // Whatever else would be sent comes before this one: a group is flushed after a second.
      await alertmanager.send([{ labels: { alertname: 'TagferryValuesDropped', job: 'tagferry', instance: 'gw-1' } }]);
      await vi.waitFor(() => expect(notifications.at(-1)!.alerts[0]!.labels.alertname).toBe('TagferryValuesDropped'), {
        timeout: 60_000,
      });
      const told = notifications.map(({ status, alerts }) => [status, alerts.map(({ labels }) => labels.alertname)]);
      expect(told).toEqual([
        ['firing', ['TagferryFleetPlatformUnavailable']],
        ['resolved', ['TagferryFleetPlatformUnavailable']],
        ['firing', ['TagferryValuesDropped']],
      ]);
    } finally {
      await alertmanager.stop();
    }
  }, 240_000);
});
