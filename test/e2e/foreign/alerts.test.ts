// Requires: promtool, prometheus-alertmanager
import { execFileSync, spawn, spawnSync } from 'node:child_process';
import { once } from 'node:events';
import { mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { createServer } from 'node:http';
import type { AddressInfo } from 'node:net';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { describe, expect, it, vi } from 'vitest';
import { parse, stringify } from 'yaml';
import { freePort } from '../../../src/base/port-claim.ts';

const FOLDER = join(import.meta.dirname, '../../../config/monitoring');
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

describe('alert rules', () => {
  it('are valid for Prometheus', () => {
    const said = execFileSync('promtool', ['check', 'rules', RULES], { encoding: 'utf8' });
    expect(said).toContain(`${rules.length} rules found`);
  });

  // promtool evaluates hours of rules in one process, which is slow on a busy machine.
  const PATIENCE = { timeout: 300_000 };
  it('fire in the situations that they describe and not in similar ones, as verified by promtool', PATIENCE, () => {
    const { status, stdout, stderr } = spawnSync('promtool', ['test', 'rules', TESTS], { encoding: 'utf8' });
    expect(`${stdout}${stderr}`).toContain('SUCCESS');
    expect(status).toBe(0);
  });

  it('are each tested with and without an alert', () => {
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

  it('contain the urgency, the gateway and the next step', () => {
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

/**
 * Starts Alertmanager with the shipped configuration, but without waits, and with a receiver that records
 * notifications.
 */
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

describe('Alertmanager example', () => {
  it('sends one notification for a platform outage that affects forty gateways, and one when it ends', async () => {
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
      // Any other notification would be sent before this one, because a group is flushed after one second.
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

describe('Grafana dashboard', () => {
  it('has queries that Prometheus accepts', () => {
    const dashboard = JSON.parse(readFileSync(join(FOLDER, 'tagferry.dashboard.json'), 'utf8')) as {
      panels: { targets?: { expr: string }[] }[];
      annotations: { list: { expr: string }[] };
    };
    const queries = [...dashboard.panels.flatMap(({ targets = [] }) => targets), ...dashboard.annotations.list];
    const folder = mkdtempSync(join(tmpdir(), 'tagferry-dashboard-'));
    try {
      const rules = queries.map(({ expr }, at) => ({
        record: `dashboard:query_${at}`,
        expr: expr.replaceAll('$__rate_interval', '2m').replaceAll(/\$\w+/g, 'x'),
      }));
      const file = join(folder, 'rules.yml');
      writeFileSync(file, stringify({ groups: [{ name: 'dashboard', rules }] }));
      const output = execFileSync('promtool', ['check', 'rules', '--lint=none', file], { encoding: 'utf8' });
      expect(output).toContain(`${rules.length} rules found`);
    } finally {
      rmSync(folder, { recursive: true, force: true });
    }
  });
});
