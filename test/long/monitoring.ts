import { type ChildProcess, spawn } from 'node:child_process';
import { once } from 'node:events';
import { mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { createServer, type Server } from 'node:http';
import type { AddressInfo } from 'node:net';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { vi } from 'vitest';
import { parse, stringify } from 'yaml';
import { freePort } from '../../src/base/port-claim.ts';

const SHIPPED = join(import.meta.dirname, '../../config/monitoring');
/** Shortens durations, so that one minute of the shipped files becomes 3 seconds. */
const SPEED = 20;
const LONGEST_FOR_SECONDS = 20;
const UNIT_SECONDS: Record<string, number> = { s: 1, m: 60, h: 3600 };

export interface Notification {
  receiver: string;
  status: 'firing' | 'resolved';
  alerts: { status: string; labels: { alertname: string; instance?: string; severity: string } }[];
}

export interface ScrapedGateway {
  instance: string;
  port: number;
}

function shorter(duration: string, longest = Number.POSITIVE_INFINITY): string {
  const [, count, unit] = /^(\d+)([smh])$/.exec(duration)!;
  const seconds = (Number(count) * UNIT_SECONDS[unit!]!) / SPEED;
  return `${Math.max(1, Math.min(longest, Math.round(seconds)))}s`;
}

/** The shipped rules with all durations divided by SPEED. */
function fasterRules(): string {
  const { groups } = parse(readFileSync(join(SHIPPED, 'tagferry.rules.yml'), 'utf8')) as {
    groups: { rules: { expr: string; for?: string; keep_firing_for?: string }[] }[];
  };
  for (const rule of groups.flatMap(({ rules }) => rules)) {
    if (rule.for !== undefined) rule.for = shorter(rule.for, LONGEST_FOR_SECONDS);
    if (rule.keep_firing_for !== undefined) rule.keep_firing_for = shorter(rule.keep_firing_for);
    rule.expr = rule.expr
      .replaceAll(/\[(\d+[smh])\]/g, (_, range: string) => `[${shorter(range)}]`)
      .replaceAll(/offset (\d+[smh])/g, (_, offset: string) => `offset ${shorter(offset)}`)
      .replaceAll(/> (300|900|3600)\b/g, (_, seconds: string) => `> ${Number(seconds) / SPEED}`);
  }
  return stringify({ groups });
}

/**
 * Debian's Prometheus and Alertmanager with the shipped rules and example, sped up, and a receiver that records all
 * notifications.
 */
export class Monitoring {
  readonly notifications: Notification[] = [];
  readonly #folder = mkdtempSync(join(tmpdir(), 'tagferry-monitoring-'));
  readonly #children: ChildProcess[] = [];
  readonly #receiver: Server;
  #prometheus = '';

  private constructor() {
    this.#receiver = createServer((request, response) => {
      let text = '';
      request.on('data', (chunk) => {
        text += chunk;
      });
      request.on('end', () => {
        this.notifications.push(JSON.parse(text) as Notification);
        response.end();
      });
    });
  }

  static async start(gateways: readonly ScrapedGateway[]): Promise<Monitoring> {
    const monitoring = new Monitoring();
    try {
      await monitoring.#start(gateways);
      return monitoring;
    } catch (error) {
      await monitoring.stop();
      throw error;
    }
  }

  async #start(gateways: readonly ScrapedGateway[]): Promise<void> {
    this.#receiver.listen(0, '127.0.0.1');
    await once(this.#receiver, 'listening');
    const { port } = this.#receiver.address() as AddressInfo;
    const shipped = readFileSync(join(SHIPPED, 'tagferry.alertmanager.yml'), 'utf8');
    const faster = shipped.replaceAll(
      /(group_wait|group_interval): (\d+[smh])/g,
      (_, key: string, value: string) => `${key}: ${shorter(value)}`,
    );
    const routing = parse(faster) as { receivers: { name: string; webhook_configs?: unknown[] }[] };
    for (const receiver of routing.receivers) {
      receiver.webhook_configs = [{ url: `http://127.0.0.1:${port}/`, send_resolved: true }];
    }
    const alertmanager = `127.0.0.1:${await freePort()}`;
    this.#run('prometheus-alertmanager', [
      `--config.file=${this.#write('alertmanager.yml', stringify(routing))}`,
      `--storage.path=${this.#folder}`,
      `--web.listen-address=${alertmanager}`,
      '--cluster.listen-address=',
    ]);
    const configuration = {
      global: { scrape_interval: '2s', scrape_timeout: '2s', evaluation_interval: '2s' },
      rule_files: [this.#write('rules.yml', fasterRules())],
      alerting: { alertmanagers: [{ static_configs: [{ targets: [alertmanager] }] }] },
      scrape_configs: [
        {
          job_name: 'tagferry',
          static_configs: gateways.map((gateway) => ({
            targets: [`127.0.0.1:${gateway.port}`],
            labels: { instance: gateway.instance },
          })),
        },
      ],
    };
    this.#prometheus = `127.0.0.1:${await freePort()}`;
    this.#run('prometheus', [
      `--config.file=${this.#write('prometheus.yml', stringify(configuration))}`,
      `--storage.tsdb.path=${join(this.#folder, 'tsdb')}`,
      `--web.listen-address=${this.#prometheus}`,
    ]);
    for (const address of [alertmanager, this.#prometheus]) {
      await vi.waitFor(
        async () => {
          const { ok } = await fetch(`http://${address}/-/ready`);
          if (!ok) throw new Error(`${address} is not ready`);
        },
        { timeout: 60_000, interval: 200 },
      );
    }
  }

  #write(name: string, text: string): string {
    const file = join(this.#folder, name);
    writeFileSync(file, text);
    return file;
  }

  #run(program: string, args: readonly string[]): void {
    this.#children.push(spawn(program, args, { stdio: 'ignore' }));
  }

  async query(expression: string): Promise<{ metric: Record<string, string>; value: number }[]> {
    const response = await fetch(`http://${this.#prometheus}/api/v1/query?query=${encodeURIComponent(expression)}`);
    const { data } = (await response.json()) as {
      data: { result: { metric: Record<string, string>; value: [number, string] }[] };
    };
    return data.result.map(({ metric, value }) => ({ metric, value: Number(value[1]) }));
  }

  /** Alerts that currently fire in Prometheus, as `alert instance`, sorted. */
  async firing(): Promise<string[]> {
    const alerts = await this.query('ALERTS{alertstate="firing"}');
    return alerts.map(({ metric }) => `${metric.alertname} ${metric.instance ?? 'fleet'}`).sort();
  }

  /** Alerts in the notifications from an index on, as `status alert instance`, sorted, without duplicates. */
  notified(from: number): string[] {
    const alerts = this.notifications.slice(from).flatMap((notification) => notification.alerts);
    return [
      ...new Set(alerts.map(({ status, labels }) => `${status} ${labels.alertname} ${labels.instance ?? 'fleet'}`)),
    ].sort();
  }

  async stop(): Promise<void> {
    for (const child of this.#children) {
      if (child.exitCode !== null || child.signalCode !== null) continue;
      child.kill('SIGKILL');
      await once(child, 'exit');
    }
    this.#receiver.close();
    this.#receiver.closeAllConnections();
    rmSync(this.#folder, { recursive: true, force: true });
  }
}
