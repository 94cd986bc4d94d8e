// Requires: root, a writable memory control group
/**
 * Memory of the agent within the shipped limits, whatever programs send. `dispose` fails if the kernel killed the agent.
 */
import { appendFileSync, chmodSync, existsSync, readFileSync, statSync, writeFileSync } from 'node:fs';
import { connect } from 'node:net';
import { join } from 'node:path';
import { gzipSync } from 'node:zlib';
import { afterEach, beforeEach, describe, expect, it } from 'vitest';
import { OpcuaServer } from '../e2e/harness/opcua-server.ts';
import { Platform } from '../e2e/harness/platform.ts';
import { GatewayProcess } from './gateway-process.ts';
import { MemoryBounds } from './memory-bounds.ts';

const TAGS = 'tags: { FT-101: { asset: 881, values: { flow: { unit: 1 } } } }\n';
const MB = 1_000_000;
const MiB = 2 ** 20;
/** Limits for JSON and for lines. */
const [JSON_BYTES, LINES_BYTES] = [2 * MiB, 8 * MiB];
/** Memory reserved for one body, in MiB. */
const RESERVED_MB = 64;
const JSON_TYPE = 'application/json';
const NDJSON_TYPE = 'application/x-ndjson';
/** `MemoryMax` of the unit, in MiB. */
const UNIT_MB = 256;
/** Sizes of the input before and after which memory is compared, and the accepted growth. */
const [FIRST, ALL, GROWTH_MB] = [10 * MB, 100 * MB, 10];

let platform: Platform;
let gateway: GatewayProcess;

beforeEach(async () => {
  platform = await Platform.start();
});
afterEach(async () => {
  await gateway.dispose();
  await platform.stop();
});

function post(body: Buffer | string, type = JSON_TYPE, path = '/v1/values', headers: Record<string, string> = {}) {
  return gateway.call(gateway.ingest, path, { body, headers: { 'Content-Type': type, ...headers } });
}

function processMb(field: 'VmHWM' | 'VmRSS'): number {
  const status = readFileSync(`/proc/${gateway.pid}/status`, 'utf8');
  return Number(new RegExp(`^${field}:\\s+(\\d+) kB`, 'm').exec(status)![1]) / 1_024;
}

const fill = (text: string, bytes = LINES_BYTES) => text.repeat(Math.floor(bytes / text.length));
const listOf = (value: string, bytes = JSON_BYTES) => `{"values":[${fill(`${value},`, bytes - 30)}${value}]}`;

/** Fails if resident memory grows after the first 10 MB while `send` sends the rest. */
async function expectLevel(send: (bytes: number) => Promise<void>): Promise<void> {
  await send(FIRST);
  const levelMb = gateway.memoryMb();
  await send(ALL - FIRST);
  const isLevel = () => gateway.memoryMb() <= levelMb + GROWTH_MB;
  await gateway.until(isLevel, `resident memory returns to ${levelMb} MB`, 20_000);
}

describe('agent within the shipped memory limits', () => {
  it('responds to every body of maximum size that is expensive to parse', async () => {
    gateway = new GatewayProcess(platform.url, { tags: TAGS });
    await gateway.start();
    const distinct = Array.from({ length: 150_000 }, (_, at) => `{"${at.toString(36)}":1}`).join(',');
    const bodies: [status: number, body: string, type?: string, path?: string][] = [
      [413, listOf('{ }')],
      [400, listOf('{}')],
      [413, listOf('1')],
      [400, fill('[', JSON_BYTES)],
      [400, `{"values":[${'['.repeat(1e6)}${']'.repeat(1e6)}]}`],
      [422, `{"values":[${'{"":'.repeat(4e5)}1${'}'.repeat(4e5)}]}`],
      [422, `{"values":[${distinct}]}`],
      [422, `{"values":[{${'"a":1,'.repeat(3e5)}"b":1}]}`],
      [422, `{"values":[{"tag":"${'\\u0041'.repeat(3e5)}"}]}`],
      [422, `{${'"a":{},'.repeat(1e6)}"b":1}\n`, NDJSON_TYPE],
      [422, fill('{"a":'), NDJSON_TYPE],
      [413, `FT-101 ${fill('a=1,', 8e6)}a=1`, '', '/write'],
      [413, fill('a b=1\n'), '', '/write'],
      [400, `a b="${fill('x').slice(9)}`, '', '/write'],
    ];
    for (const [status, body, type, path] of bodies) {
      // Writing 5 resets the peak.
      writeFileSync(`/proc/${gateway.pid}/clear_refs`, '5');
      const beforeMb = processMb('VmRSS');
      const response = await post(body, type, path);
      expect([body.slice(0, 30), response.status]).toEqual([body.slice(0, 30), status]);
      expect(processMb('VmHWM') - beforeMb).toBeLessThan(RESERVED_MB);
    }
    const bomb = gzipSync(listOf('{ }'));
    const all = await Promise.all([
      ...Array.from({ length: 64 }, () => post(bomb, JSON_TYPE, '/v1/values', { 'Content-Encoding': 'gzip' })),
      ...Array.from({ length: 16 }, () => post(listOf('{ }'))),
    ]);
    expect(all.filter(({ status }) => status !== 413 && status !== 503)).toEqual([]);
    expect((await gateway.push([{ tag: 'FT-101', key: 'flow', value: 1 }])).status).toBe(204);
  }, 240_000);

  it('reads a body that arrives in a million chunks of one byte', async () => {
    gateway = new GatewayProcess(platform.url, { tags: TAGS });
    await gateway.start();
    const socket = connect(gateway.ingest);
    const head = 'POST /v1/values HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n';
    socket.write(`${head}Transfer-Encoding: chunked\r\n\r\n${'1\r\n \r\n'.repeat(MiB)}0\r\n\r\n`);
    const [answer] = await new Promise<Buffer[]>((resolve) => socket.once('data', (...chunks) => resolve(chunks)));
    socket.destroy();
    expect(String(answer)).toMatch(/^HTTP\/1\.1 400 /);
  }, 120_000);

  it('does not use more memory after 100 MB of partial requests', async () => {
    gateway = new GatewayProcess(platform.url, { tags: TAGS });
    await gateway.start();
    await platform.fail();
    const body = `${'{"tag":"FT-101","key":"flow","value":1}'.padEnd(999)}\n`.repeat(16);
    await expectLevel(async (bytes) => {
      let left = bytes;
      const sender = async () => {
        while (left > 0) {
          left -= body.length;
          expect((await post(body, NDJSON_TYPE, '/v1/values?partial=true')).status).toBe(200);
        }
      };
      await Promise.all(Array.from({ length: 8 }, sender));
    });
  }, 240_000);

  it.each([
    ['short lines', 'b\'{"tag":"T-1","key":"n","value":12.5}   \\n\'', 40],
    ['output without line feeds', 'b"x" * 50000', 50_000],
  ])(
    'does not use more memory after 100 MB of a program: %s',
    async (_, piece, size) => {
      gateway = new GatewayProcess(platform.url, { tags: TAGS });
      const program = join(gateway.folder, 'program');
      const printed = join(gateway.folder, 'printed');
      gateway.write(platform.url, {
        tags: `sources: { p: { exec: ["${program}"] } }
tags: { T-1: { asset: 881, values: { n: { unit: 1, from: p, on_change: true } } } }\n`,
      });
      // Prints the first part, and the rest when the file `go` appears. At most 64 kB remain in the pipe.
      writeFileSync(
        program,
        `#!/usr/bin/env python3
import os, time
def send(bytes):
    for _ in range(bytes // ${size}): os.write(1, ${piece})
    open("${printed}", "a").write(".")
send(${FIRST})
parent = os.getppid()
while os.getppid() == parent and not os.path.exists("${program}.go"): time.sleep(0.02)
send(${ALL - FIRST})
while os.getppid() == parent: time.sleep(0.02)
`,
      );
      chmodSync(program, 0o755);
      await gateway.start();
      let parts = 0;
      await expectLevel(async () => {
        if (parts++ > 0) appendFileSync(`${program}.go`, '');
        const hasPrinted = () => existsSync(printed) && statSync(printed).size === parts;
        await gateway.until(hasPrinted, 'the program has printed', 120_000);
      });
    },
    240_000,
  );

  it('delivers every value of an OPC UA message with 50,000 values', async () => {
    const server = new OpcuaServer();
    try {
      await server.start();
      const tags = `sources: { cell: { opcua: "${server.url}", security: None, every: 50ms } }
tags: { T: { asset: 881, values: { flow: { from: cell, node: "ns=1;s=Line1.Flow" } } } }\n`;
      gateway = new GatewayProcess(platform.url, { tags }, new MemoryBounds('bounds.conf', UNIT_MB));
      await gateway.start();
      const stored = () => platform.stored(881, 'flow');
      await gateway.until(() => stored().length > 0, 'the first value arrives', 60_000);
      const count = 50_000;
      server.send({ flood: count, set: { Flow: 1 } });
      await gateway.until(() => stored().length > count, 'the values of the message arrive', 60_000);
      expect(stored().map(({ value }) => value)).toEqual([...Array(count).keys(), 12.5]);
      expect([...gateway.logged('opcua.oversized'), ...gateway.logged('opcua.ended')]).toEqual([]);
    } finally {
      await server.dispose();
    }
  }, 180_000);

  it('with the maximum number of series loses no values if it is killed during an outage', async () => {
    gateway = new GatewayProcess(platform.url, { tags: TAGS });
    await gateway.start();
    await platform.fail();
    const [count, timestamp] = [2_000, 1_700_000_000_000];
    const assetOf = (n: number) => 881 + (n % 4);
    const push = (from: number) => {
      const values = Array.from({ length: count }, (_, n) => ({ key: `s${from + n}`, value: n, timestamp }));
      return gateway.push(values.map((value, n) => ({ asset: assetOf(n), ...value })));
    };
    let accepted = 0;
    let response = await push(0);
    for (; response.status === 204; response = await push(accepted)) accepted += count;
    expect([response.status, response.text]).toEqual([422, expect.stringContaining('MAX_SERIES')]);
    // One tenth of 176 or 192 MB is about 46,000 or 50,000 series of 400 bytes.
    expect(accepted).toBeGreaterThan(40_000);
    expect(await gateway.end('SIGKILL')).toBe('SIGKILL');
    await gateway.start();
    await platform.recover();
    const isEmpty = async () => (await gateway.metric('tagferry_buffer_values')) === 0;
    await gateway.until(isEmpty, 'the buffer is empty', 120_000);
    const missing = Array.from({ length: accepted }, (_, n) => n).filter(
      (n) => platform.stored(assetOf(n), `s${n}`).at(0)?.value !== n % count,
    );
    expect([missing, platform.counts().stored]).toEqual([[], accepted]);
  }, 300_000);
});
