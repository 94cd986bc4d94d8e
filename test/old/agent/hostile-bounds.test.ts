/**
 * The memory-intensive parts of a hostile day for the agent as deployed, within the shipped memory limits: rebuilding
 * a large store, and connection floods at every listener. `GatewayProcess` fails the test if a process was killed for
 * exceeding the memory limit.
 */
import { chmodSync, mkdirSync, readFileSync, rmSync, statSync, symlinkSync, writeFileSync } from 'node:fs';
import { connect, type Socket } from 'node:net';
import { join } from 'node:path';
import Database from 'better-sqlite3';
import { afterEach, beforeEach, expect, it } from 'vitest';
import { Sandbox } from '../../../src/sandbox/sandbox.ts';
import { sign } from '../../../src/webhook/signature.ts';
import type { AgentFiles } from '../../e2e/harness/agent-process.ts';
import { compileDiskLayer } from '../../host/faults/disk-fault.ts';
import { fillBuffer } from '../../host/faults/filled-buffer.ts';
import { SECTOR, sectorOf } from '../../host/faults/page-map.ts';
import { GatewayProcess } from '../../host/gateway-process.ts';
import { anEvent, SECRET } from '../../unit/webhook/parts/listening.ts';

const MiB = 2 ** 20;
const TAGS = 'tags: { FT-101: { asset: 881, values: { flow: { unit: 12 } } } }\n';

let sandbox: Sandbox;
let gateway: GatewayProcess;
let crowd: Socket[];

beforeEach(async () => {
  crowd = [];
  sandbox = new Sandbox({ limits: { perUser: 0, perApiKey: 0, perAddress: 0 } });
  await sandbox.start();
});
afterEach(async () => {
  for (const socket of crowd) socket.destroy();
  await gateway.dispose();
  await sandbox.stop();
});

function newGateway(env: AgentFiles['env'] = {}): GatewayProcess {
  gateway = new GatewayProcess(sandbox.url, { tags: TAGS, env });
  return gateway;
}

function rootOf(path: string, table: string): number {
  const database = new Database(path, { readonly: true });
  const root = database.prepare('SELECT rootpage FROM sqlite_schema WHERE name = ?').pluck().get(table) as number;
  database.close();
  return root;
}

it('large store with a bad sector is rebuilt during ingestion', {
  timeout: 150_000,
}, async () => {
  const values = 1_500_000;
  newGateway();
  await sandbox.goOffline('refuse');
  const path = fillBuffer(gateway.state, values);
  expect(statSync(path).size).toBeGreaterThan(10 * MiB);
  const orders = join(gateway.folder, 'orders');
  const { ino } = statSync(path);
  const sector = sectorOf(rootOf(path, 'span'));
  writeFileSync(orders, `fail_read ${ino} ${sector * SECTOR} ${sector * SECTOR + SECTOR}\n`);
  const layer = { LD_PRELOAD: compileDiskLayer(), DISK_LAYER_PATH: gateway.state, DISK_LAYER_ORDERS: orders };
  await gateway.start(layer);
  expect(gateway.logged('store.corrupt').length).toBe(1);
  let taken = 0;
  await gateway.until(
    async () => {
      if ((await gateway.push([{ tag: 'FT-101', key: 'flow', value: 1 }])).status === 204) taken++;
      return gateway.logged('store.rebuilt').length > 0;
    },
    'it is rebuilt',
    120_000,
  );
  expect(taken).toBeGreaterThan(0);
  // The sector contained the span directories. They are rebuilt from the segments without loss.
  expect(await gateway.metric('tagferry_buffer_values')).toBe(values + taken);
  expect(gateway.logged('store.row_damaged')).toEqual([]);
});

function strangers(path: string, count: number, text: string): Promise<unknown> {
  return Promise.all(
    Array.from({ length: count }, () => {
      const socket = connect(path);
      crowd.push(socket);
      return new Promise<void>((resolve) => {
        socket.on('error', () => {}).on('close', () => resolve());
        socket.once('connect', () => (text === '' ? resolve() : socket.write(text, () => resolve())));
      });
    }),
  );
}

it('connection floods on all listeners do not lock out other clients', { timeout: 120_000 }, async () => {
  newGateway({ WEBHOOK_SECRET: SECRET });
  await gateway.start();
  const head = (path: string, type: string, length: number) =>
    `POST ${path} HTTP/1.1\r\nHost: localhost\r\nContent-Type: ${type}\r\nX-Hub-Signature-Sha256: sha256=${'0'.repeat(64)}\r\nContent-Length: ${length}\r\n\r\n`;
  const allButOne = (path: string, type: string, bytes: number) => head(path, type, bytes) + ' '.repeat(bytes - 1);
  await Promise.all([
    strangers(gateway.webhook, 33, allButOne('/webhook', 'application/json', MiB)),
    strangers(gateway.webhook, 200, ''),
    strangers(gateway.ops, 64, ''),
    strangers(gateway.ops, 100, 'GET /healthz HTTP/1.1\r\nX-A: '),
    strangers(gateway.ingest, 20, allButOne('/v1/values', 'application/json', 2 * MiB)),
    strangers(gateway.ingest, 20, allButOne('/write', 'text/plain', 8 * MiB)),
  ]);
  for (let i = 0; i < 20; i++) {
    const body = anEvent();
    const headers = { 'X-Hub-Signature-Sha256': sign(Buffer.from(body), SECRET) };
    expect((await gateway.call(gateway.webhook, '/webhook', { body, headers })).status).toBe(204);
    expect((await gateway.call(gateway.ops, '/healthz')).status).toBe(200);
    expect((await gateway.call(gateway.ops, '/metrics')).status).toBe(200);
    expect((await gateway.push([{ tag: 'FT-101', key: 'flow', value: i }])).status).toBe(204);
  }
  // Memory used by discarded input is released. Previously, such input used 150 MB or more.
  expect(gateway.bounds.heldMb).toBeLessThan(120);
});

it('agent does not write through a planted symlink, and restricts the permissions of an open state folder', async () => {
  newGateway();
  mkdirSync(gateway.state);
  chmodSync(gateway.state, 0o777);
  const elsewhere = join(gateway.folder, 'elsewhere');
  writeFileSync(elsewhere, 'ours');
  symlinkSync(elsewhere, join(gateway.state, 'buffer.db'));
  gateway.launch();
  expect(await gateway.ended()).not.toBe(0);
  expect(readFileSync(elsewhere, 'utf8')).toBe('ours');
  rmSync(join(gateway.state, 'buffer.db'));
  await gateway.start();
  expect(statSync(gateway.state).mode & 0o777).toBe(0o700);
});

it('files that are expensive to parse are rejected during ingestion', { timeout: 120_000 }, async () => {
  newGateway();
  await gateway.start();
  const costly = [
    `tags: { X: ${'a'.repeat(200_000)} }\n`,
    `tags: ${'['.repeat(20_000)}\n`,
    `a: &a [${'x,'.repeat(1_000)}]\nb: &b [${'*a,'.repeat(1_000)}]\ntags: [${'*b,'.repeat(1_000)}]\n`,
  ];
  const firstMs = Date.now() - 600_000;
  let sent = 0;
  for (const [before, tags] of costly.entries()) {
    gateway.write(sandbox.url, { tags });
    gateway.signal('SIGHUP');
    do {
      const value = { tag: 'FT-101', key: 'flow', value: sent, timestamp: firstMs + sent };
      expect((await gateway.push([value])).status).toBe(204);
      sent++;
    } while (gateway.logged('config.refused').length <= before);
  }
  await gateway.until(() => sandbox.values.counts(881).stored === sent, 'every accepted value has arrived');
});
