/** Ports outside the ephemeral range that stay reserved for one process, even if it is not listening. */
import { spawn } from 'node:child_process';
import { once } from 'node:events';
import { mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { createServer } from 'node:net';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { pathToFileURL } from 'node:url';
import { afterEach, beforeEach, describe, expect, it } from 'vitest';
import { claimPort, freePort, type PortClaim } from '../../../src/base/port-claim.ts';

const LAST_GIVEN = Number(readFileSync('/proc/sys/net/ipv4/ip_local_port_range', 'utf8').trim().split(/\s+/)[1]);
const SOURCE = pathToFileURL(join(import.meta.dirname, '../../../src/base/port-claim.ts')).href;

let folder: string;
let claims: PortClaim[];
beforeEach(() => {
  folder = mkdtempSync(join(tmpdir(), 'tagferry-port-'));
  claims = [];
});
afterEach(() => {
  for (const claim of claims) claim.release();
  rmSync(folder, { recursive: true, force: true });
});

async function claim(from?: number): Promise<number> {
  const claimed = (await claimPort(from))!;
  claims.push(claimed);
  return claimed.port;
}

/** Starts a process that claims a port, prints its number, and waits. */
async function claimElsewhere(from?: number): Promise<{ port: number; kill(): Promise<unknown> }> {
  const script = `import { claimPort } from ${JSON.stringify(SOURCE)};
    const { port } = await claimPort(${from});
    process.stdout.write(String(port));
    setInterval(() => {}, 1_000);`;
  const child = spawn(process.execPath, ['--input-type=module', '-e', script], {
    stdio: ['ignore', 'pipe', 'inherit'],
  });
  const [text] = (await once(child.stdout, 'data')) as [Buffer];
  const kill = () => {
    const ended = once(child, 'exit');
    child.kill('SIGKILL');
    return ended;
  };
  return { port: Number(text.toString()), kill };
}

describe('claimed port', () => {
  it('is never assigned by the kernel as an ephemeral port', async () => {
    expect(await claim()).toBeGreaterThan(LAST_GIVEN);
  });

  it('is not assigned to another program that checks claims until it is released', async () => {
    const first = await claim();
    expect(await claim(first)).not.toBe(first);
    claims.shift()!.release();
    expect(await claim(first)).toBe(first);
  });

  it('belongs to one process and is released when that process is killed', async () => {
    const other = await claimElsewhere();
    const own = await claim(other.port);
    expect(own).not.toBe(other.port);
    const third = await claimElsewhere(other.port);
    expect([own, other.port]).not.toContain(third.port);
    await Promise.all([other.kill(), third.kill()]);
    expect(await claim(other.port)).toBe(other.port);
  });

  it('is never a port that is already in use', async () => {
    const port = await claim();
    claims.pop()!.release();
    const server = createServer();
    await once(server.listen(port, '127.0.0.1'), 'listening');
    expect(await claim(port)).not.toBe(port);
    await once(server.close(), 'close');
  });
});

it('port claim fails if the kernel reports no ephemeral port range, or uses all ports as ephemeral ports', async () => {
  const file = join(folder, 'range');
  expect(await claimPort(undefined, file)).toBeUndefined();
  for (const text of ['', 'none\n', '1024\t65535\n']) {
    writeFileSync(file, text);
    expect(await claimPort(undefined, file)).toBeUndefined();
  }
});

it('released port is not claimed again immediately', async () => {
  const ports = new Set<number>();
  for (let i = 0; i < 20; i++) {
    const { port, release } = (await claimPort())!;
    ports.add(port);
    release();
  }
  expect(ports.size).toBe(20);
});

it('free port remains reserved until its process exits', async () => {
  const port = await freePort();
  expect(await claim(port)).not.toBe(port);
});
