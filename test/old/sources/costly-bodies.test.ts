import { type ChildProcess, spawn } from 'node:child_process';
import { once } from 'node:events';
import { readFileSync, writeFileSync } from 'node:fs';
import { request } from 'node:http';
import { connect } from 'node:net';
import { join } from 'node:path';
import { gzipSync } from 'node:zlib';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { MemoryBounds } from '../agent/memory-bounds.ts';

/** Invariant 8: no input causes the agent to exceed the unit's memory limit, measured as the peak of the process. */
const MiB = 1024 * 1024;
/** Limits for JSON and for lines. */
const JSON_BYTES = 2 * MiB;
const LINES_BYTES = 8 * MiB;
/** Memory reserved for either. */
const MOST = 64 * MiB;
let child: ChildProcess;
let port = 0;
let bounds: MemoryBounds;

beforeAll(async () => {
  bounds = new MemoryBounds();
  const command = [
    process.execPath,
    '--max-semi-space-size=1',
    '--expose-gc',
    join(import.meta.dirname, 'push-process.ts'),
  ];
  const [file, ...args] = [...bounds.surroundings, ...command];
  child = spawn(file!, args, { stdio: ['ignore', 'pipe', 'inherit'] });
  const [chunk] = (await once(child.stdout!, 'data')) as [Buffer];
  port = Number(chunk.toString());
  // Loads modules and allocates buffers.
  for (let i = 0; i < 20; i++) await send(body('{"tag":"FT-101","key":"flow","value":1}', 1000));
});
afterAll(async () => {
  child.kill('SIGKILL');
  await bounds.remove();
});

const body = (value: string, count: number) => Buffer.from(`{"values":[${Array(count).fill(value).join(',')}]}`);

function send(
  bytes: Buffer,
  headers: Record<string, string> = { 'Content-Type': 'application/json' },
  path = '/v1/values',
): Promise<number> {
  return new Promise((resolve) => {
    const options = { host: '127.0.0.1', port, path, method: 'POST', headers, agent: false };
    const outgoing = request(options, (response) => {
      response.resume();
      resolve(response.statusCode!);
    });
    outgoing.on('error', () => resolve(0));
    outgoing.end(bytes);
  });
}

function memory(field: 'VmHWM' | 'VmRSS'): number {
  const status = readFileSync(`/proc/${child.pid}/status`, 'utf8');
  return Number(new RegExp(`^${field}:\\s+(\\d+) kB`, 'm').exec(status)![1]) * 1024;
}

/** Returns the peak memory of the process during `act`, minus the memory used before. */
async function growth(act: () => Promise<void>): Promise<number> {
  // Writing 5 resets the peak.
  writeFileSync(`/proc/${child.pid}/clear_refs`, '5');
  const before = memory('VmRSS');
  await act();
  return memory('VmHWM') - before;
}

const lines = { 'Content-Type': 'application/x-ndjson' };
const fill = (text: string, bytes = LINES_BYTES) => Buffer.from(text.repeat(Math.floor(bytes / text.length)));
/** Returns a JSON body of maximum size. */
const full = (value: string) => body(value, Math.floor((JSON_BYTES - 20) / (value.length + 1)));
const distinct = () => Array.from({ length: 150_000 }, (_, at) => `{"${at.toString(36)}":1}`).join(',');

describe('request body of maximum size', () => {
  it.each([
    ['empty objects', () => send(full('{ }')), 413],
    ['empty objects without spaces', () => send(full('{}')), 400],
    ['numbers', () => send(full('1')), 413],
    ['nested lists', () => send(fill('[', JSON_BYTES)), 400],
    ['nested lists under values', () => send(Buffer.from(`{"values":[${'['.repeat(1e6)}${']'.repeat(1e6)}]}`)), 400],
    ['nested objects', () => send(Buffer.from(`{"values":[${'{"":'.repeat(4e5)}1${'}'.repeat(4e5)}]}`)), 422],
    ['objects with distinct member names', () => send(Buffer.from(`{"values":[${distinct()}]}`)), 422],
    ['one value with a million members', () => send(Buffer.from(`{"values":[{${'"a":1,'.repeat(3e5)}"b":1}]}`)), 422],
    ['a line with a million members', () => send(Buffer.from(`{${'"a":{},'.repeat(1e6)}"b":1}\n`), lines), 422],
    ['nested objects on one line', () => send(fill('{"a":'), lines), 422],
    ['a string of escapes', () => send(Buffer.from(`{"values":[{"tag":"${'\\u0041'.repeat(3e5)}"}]}`)), 422],
    ['fields of four bytes', () => send(Buffer.from(`FT-101 ${fill('a=1,').subarray(0, 8e6)}a=1`), {}, '/write'), 413],
    ['lines of six bytes', () => send(fill('a b=1\n'), {}, '/write'), 413],
    [
      'an unterminated string',
      () => send(Buffer.concat([Buffer.from('a b="'), fill('x').subarray(9)]), {}, '/write'),
      400,
    ],
  ] as [string, () => Promise<number>, number][])('uses at most the reserved memory: %s', async (_, act, status) => {
    let answered = 0;
    const grown = await growth(async () => {
      answered = await act();
    });
    expect(answered).toBe(status);
    expect(grown).toBeLessThan(MOST);
  });

  it('uses little memory even if it arrives in a million one-byte chunks', async () => {
    const chunks = Buffer.from(`1\r\n \r\n`.repeat(MiB / 16));
    const socket = connect(port, '127.0.0.1');
    const answered = once(socket, 'data');
    const grown = await growth(async () => {
      socket.write('POST /v1/values HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n');
      socket.write('Transfer-Encoding: chunked\r\n\r\n');
      for (let part = 0; part < 16; part++) if (!socket.write(chunks)) await once(socket, 'drain');
      socket.write('0\r\n\r\n');
      await answered;
    });
    socket.destroy();
    expect(String((await answered)[0])).toMatch(/^HTTP\/1\.1 400 /);
    expect(grown).toBeLessThan(MOST);
  });

  it('is rejected while too many requests are pending, without crashing the listener', async () => {
    const bomb = gzipSync(full('{ }'));
    const gzip = { 'Content-Type': 'application/json', 'Content-Encoding': 'gzip' };
    const answers: number[] = [];
    const grown = await growth(async () => {
      answers.push(...(await Promise.all(Array.from({ length: 64 }, () => send(bomb, gzip)))));
      answers.push(...(await Promise.all(Array.from({ length: 16 }, () => send(full('{ }'))))));
    });
    expect(answers.filter((status) => status !== 413 && status !== 503)).toEqual([]);
    // Difference between the shipped memory limit and an idle agent.
    expect(grown).toBeLessThan(90 * MiB);
    expect(bounds.kills).toBe(0);
    expect(await send(body('{"tag":"FT-101","key":"flow","value":1}', 10))).toBe(204);
  });
});
