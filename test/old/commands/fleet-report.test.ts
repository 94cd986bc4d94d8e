import { execFile } from 'node:child_process';
import { mkdirSync, mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { createServer, type Server } from 'node:http';
import type { AddressInfo } from 'node:net';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterEach, beforeEach, describe, expect, it } from 'vitest';
import type { StatusReport } from '../../../src/ops/status-report.ts';
import { MAIN } from '../../built-agent.ts';
import { CALM_STATUS } from '../../unit/doubles/calm-status.ts';

const TOKEN = 'ops-token-of-all';

let folder: string;
let server: Server;
let address: string;
let asked: (string | undefined)[];

beforeEach(async () => {
  folder = mkdtempSync(join(tmpdir(), 'tagferry-fleet-'));
  asked = [];
  server = createServer((request, response) => {
    asked.push(request.headers.authorization);
    if (request.headers.authorization !== `Bearer ${TOKEN}`) response.writeHead(401).end('{}');
    else if (request.url === '/huge') response.end('x'.repeat(5_000_000));
    else if (request.url === '/echo') response.end(JSON.stringify({ ...CALM_STATUS, version: `0.2.0 ${TOKEN}` }));
    else response.end(JSON.stringify({ ...CALM_STATUS, version: '0.2.0' }));
  });
  await new Promise<void>((resolve) => server.listen(0, '127.0.0.1', () => resolve()));
  address = `http://127.0.0.1:${(server.address() as AddressInfo).port}`;
});
afterEach(async () => {
  rmSync(folder, { recursive: true, force: true });
  server.closeAllConnections();
  await new Promise((resolve) => server.close(resolve));
});

function report(...args: string[]): Promise<{ status: number; out: string; error: string }> {
  return new Promise((resolve) => {
    const options = { env: { ...process.env, NO_COLOR: '1' } };
    execFile(process.execPath, [MAIN, 'fleet-report', ...args], options, (failure, out, error) =>
      resolve({ status: failure ? Number(failure.code) : 0, out, error }),
    );
  });
}

const write = (name: string, text: string) => writeFileSync(join(folder, name), text);
const writeStatus = (name: string, changed: Partial<StatusReport> = {}) =>
  write(name, JSON.stringify({ ...CALM_STATUS, ...changed }));

describe('tagferry fleet-report', () => {
  it('lists reports from folders and addresses in one table, with problems first', async () => {
    writeStatus('good.json');
    writeStatus('behind.json', { buffer: { ...CALM_STATUS.buffer, values: 5_000, oldest_age_seconds: 7_200 } });
    const last_error = { code: 'oauth.invalid_grant', message: 'wrong password', hint: undefined };
    writeStatus('signed-out.json', {
      state: 'signed out',
      session: { ...CALM_STATUS.session, usable: false, last_error },
    });
    write('ignored.txt', 'x');
    const token = join(folder, '.token');
    write('.token', `${TOKEN}\n`);
    const { status, out } = await report(folder, address, '--token-file', token);
    expect(status).toBe(0);
    const lines = out.split('\n');
    expect(lines[0]).toMatch(/^gateway +state +version +configuration +buffered/);
    expect(lines[1]).toMatch(/^behind .* 5,?000 .*2 h.*behind$/);
    expect(lines[2]).toMatch(/^signed-out +signed out .*signed out: oauth.invalid_grant$/);
    expect(
      lines
        .slice(3, 5)
        .map((line) => line.split(' ')[0]!)
        .sort(),
    ).toEqual([address.slice(7), 'good'].sort());
    expect(out).toContain('4 gateways, 2 with problems, 5,000 buffered values, 2 versions, 1 configuration');
    expect(out).not.toContain(TOKEN);
  });

  it('lists gateways with differing files, and changed files that are not loaded', async () => {
    writeStatus('good.json');
    writeStatus('other.json', { configuration: { ...CALM_STATUS.configuration, files_digest: '111111111111' } });
    const changed_files = ['tags.d/line.yaml'];
    writeStatus('edited.json', { configuration: { ...CALM_STATUS.configuration, changed_files } });
    const { out } = await report(folder);
    expect(out).toMatch(/^edited .*rollout-7 fedcba987654 .*changed but not loaded: tags\.d\/line\.yaml$/m);
    expect(out).toMatch(/^other .*rollout-7 111111111111 /m);
    expect(out).toContain('2 configurations');
    const { gateways } = JSON.parse((await report(folder, '--json')).out);
    expect(gateways[0]).toMatchObject({
      gateway: 'edited',
      config_version: 'rollout-7',
      config_files: 'fedcba987654',
      config_digest: '0123456789ab',
    });
  });

  it('lists gateways whose configuration was rejected or whose agent is not running', async () => {
    writeStatus('good.json');
    const refused = { since: '2026-11-20T00:00:00.000Z', problems: ['tags.yaml:3:1: no such source'] };
    writeStatus('rejected.json', { configuration: { ...CALM_STATUS.configuration, refused } });
    const stopped = { state: 'not running', code: 'control.no_daemon', message: 'the agent is not running' };
    write('stopped.json', JSON.stringify(stopped));
    const { gateways } = JSON.parse((await report(folder, '--json')).out) as { gateways: { failures: string[] }[] };
    expect(gateways).toMatchObject([
      { gateway: 'rejected', failures: ['configuration rejected'] },
      { gateway: 'stopped', failures: [stopped.message] },
      { gateway: 'good', failures: [] },
    ]);
  });

  it('exits with 1 and reports unreadable gateways after reading the others', async () => {
    writeStatus('good.json');
    write('broken.json', '{');
    write('foreign.json', '{"hello":"world"}');
    const { status, out, error } = await report(folder, address, 'http://127.0.0.1:1', '--json');
    expect(status).toBe(1);
    const { gateways } = JSON.parse(out) as { gateways: { gateway: string; unread: string | null }[] };
    expect(Object.fromEntries(gateways.map(({ gateway, unread }) => [gateway, unread]))).toEqual({
      good: null,
      broken: 'not JSON',
      foreign: 'not a tagferry status report',
      [address.slice(7)]: 'status 401, requires OPS_TOKEN (--token-file)',
      '127.0.0.1:1': 'ECONNREFUSED',
    });
    expect(error).toContain('cannot read 4 of 5 gateways');
  });

  it('limits the response size', async () => {
    write('.token', TOKEN);
    const { status, out } = await report(`${address}/huge`, '--token-file', join(folder, '.token'));
    expect(status).toBe(1);
    expect(out).toContain('larger than 4 MiB');
  });

  it.each([
    [['/nowhere/at/all'], 'cannot read /nowhere/at/all (ENOENT)'],
    [['ftp://gateway'], '"ftp://gateway" is not an http or https address'],
    [['http://user:geheim@gateway'], 'an address contains a user name or password'],
    [['http://gateway', '--token-file', '/nowhere'], 'cannot read --token-file /nowhere (ENOENT)'],
  ])('exits with 2 for %j', async (args, words) => {
    const { status, error } = await report(...args);
    expect([status, error.includes(words)]).toEqual([2, true]);
    expect(error).not.toContain('geheim');
  });

  it('does not print a token that a server echoes', async () => {
    write('token', TOKEN);
    const { status, out, error } = await report('--token-file', join(folder, 'token'), `${address}/echo`);
    expect({ status, isShown: `${out}${error}`.includes(TOKEN) }).toEqual({ status: 0, isShown: false });
    expect(out).toContain('0.2.0 ***');
  });

  it('requires a folder with at least one report', async () => {
    mkdirSync(join(folder, 'empty'));
    const { status, error } = await report(join(folder, 'empty'));
    expect([status, error.includes('contains no *.json')]).toEqual([2, true]);
  });
});
