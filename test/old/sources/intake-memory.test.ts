/**
 * Memory of an agent that ingests for a long time: 100 MB through each input, within the shipped memory limits. Lines
 * are padded or filtered where possible, so that the test measures the input and not the buffer.
 */
import { appendFileSync, chmodSync, existsSync, statSync, writeFileSync } from 'node:fs';
import { createServer, type Server } from 'node:http';
import type { AddressInfo } from 'node:net';
import { join } from 'node:path';
import { afterEach, beforeEach, describe, expect, it } from 'vitest';
import { GatewayProcess } from '../agent/gateway-process.ts';

const MB = 1_000_000;
const FIRST = 10 * MB;
const ALL = 100 * MB;
const GROWTH_MB = 10;
const NDJSON = { 'Content-Type': 'application/x-ndjson' };
const PATH = '/v1/values?partial=true';

/** One kilobyte with one value. */
const LINE = `${'{"tag":"T-1","key":"n","value":1}'.padEnd(999)}\n`;

let platform: Server;
let gateway: GatewayProcess;

beforeEach(async () => {
  platform = createServer((_, response) => response.writeHead(503).end());
  await new Promise<void>((resolve) => platform.listen(0, '127.0.0.1', resolve));
});
afterEach(async () => {
  await gateway.dispose();
  platform.close();
});

async function start(source = '', format = 'ndjson'): Promise<void> {
  const { port } = platform.address() as AddressInfo;
  gateway = new GatewayProcess(`http://127.0.0.1:${port}`);
  const from = source === '' ? '' : ', from: p, on_change: true';
  const exec = `sources: { p: { exec: ["${join(gateway.folder, 'program')}"], format: ${format} } }\n`;
  const tags = `tags: { T-1: { asset: 881, values: { n: { unit: 1${from} } } } }\n`;
  gateway.write(`http://127.0.0.1:${port}`, { tags: source === '' ? tags : exec + tags });
  if (source !== '') {
    writeFileSync(join(gateway.folder, 'program'), `#!/usr/bin/env python3\n${source}`);
    chmodSync(join(gateway.folder, 'program'), 0o755);
  }
  await gateway.start();
}

/** Fails if resident memory grows after the first 10 MB while `send` sends the rest. */
async function demandLevel(send: (bytes: number) => Promise<void>): Promise<void> {
  await send(FIRST);
  const levelMb = gateway.memoryMb();
  await send(ALL - FIRST);
  const isLevel = () => gateway.memoryMb() <= levelMb + GROWTH_MB;
  await gateway.until(isLevel, `resident memory of ${levelMb} MB, it is ${gateway.memoryMb()} MB`, 20_000);
}

/**
 * Program that prints `FIRST` bytes, then the rest when the file `go` appears. It records in `done` how much the agent
 * has read.
 */
const program = (piece: string, size: number) => `
import os, sys, time
folder = os.path.dirname(sys.argv[0])
def send(bytes):
    for _ in range(bytes // ${size}): os.write(1, ${piece})
    open(folder + "/done", "a").write(".")
send(${FIRST})
parent = os.getppid()
def wait(until):
    while os.getppid() == parent and not until(): time.sleep(0.02)
wait(lambda: os.path.exists(folder + "/go"))
send(${ALL - FIRST})
wait(lambda: False)
`;

/** Waits until the program has printed the next part. At most 64 kB remain in its pipe. */
async function printed(parts: number): Promise<void> {
  const done = join(gateway.folder, 'done');
  await gateway.until(() => existsSync(done) && statSync(done).size === parts, 'the program has printed', 120_000);
}

async function demandLevelOfProgram(): Promise<void> {
  let parts = 0;
  await demandLevel(async () => {
    if (parts++ > 0) appendFileSync(join(gateway.folder, 'go'), '');
    await printed(parts);
  });
}

describe('resident memory', () => {
  it('does not grow while partial requests arrive', async () => {
    await start();
    const body = LINE.repeat(16);
    await demandLevel(async (bytes) => {
      let left = bytes;
      const sender = async () => {
        while (left > 0) {
          left -= body.length;
          const { status } = await gateway.call(gateway.ingest, PATH, { body, headers: NDJSON });
          expect(status).toBe(200);
        }
      };
      await Promise.all(Array.from({ length: 8 }, sender));
    });
  }, 240_000);

  it('does not grow while a program prints short lines', async () => {
    await start(program('b\'{"tag":"T-1","key":"n","value":12.5}   \\n\'', 40));
    await demandLevelOfProgram();
  }, 240_000);

  it('does not grow while a program prints output without line feeds', async () => {
    await start(program('b"x" * 50000', 50_000));
    await demandLevelOfProgram();
    expect(gateway.logged('exec.refused')[0]).toMatchObject({ source: 'p', refused: 1 });
  }, 240_000);
});
