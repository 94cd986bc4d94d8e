/** A port of one's own: outside those that the kernel gives by itself, and nobody else's though nobody listens there. */
import { spawn } from 'node:child_process';
import { once } from 'node:events';
import { mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { createServer } from 'node:net';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { pathToFileURL } from 'node:url';
import { afterEach, beforeEach, describe, expect, it } from 'vitest';
import { claimPort, freePort, type PortClaim } from '../../src/base/port-claim.ts';

const LAST_GIVEN = Number(readFileSync('/proc/sys/net/ipv4/ip_local_port_range', 'utf8').trim().split(/\s+/)[1]);
const SOURCE = pathToFileURL(join(import.meta.dirname, '../../src/base/port-claim.ts')).href;

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

/** A process that claims one, says which, and waits. */
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

describe('a port that is claimed', () => {
  it('is none that the kernel gives to who names none', async () => {
    expect(await claim()).toBeGreaterThan(LAST_GIVEN);
  });

  it('is given to no other that looks there first, until it is released', async () => {
    const first = await claim();
    expect(await claim(first)).not.toBe(first);
    claims.shift()!.release();
    expect(await claim(first)).toBe(first);
  });

  it('is no other process’s, and free again when its process was killed', async () => {
    const other = await claimElsewhere();
    const own = await claim(other.port);
    expect(own).not.toBe(other.port);
    const third = await claimElsewhere(other.port);
    expect([own, other.port]).not.toContain(third.port);
    await Promise.all([other.kill(), third.kill()]);
    expect(await claim(other.port)).toBe(other.port);
  });

  it('is none where somebody listens already', async () => {
    const port = await claim();
    claims.pop()!.release();
    const server = createServer();
    await once(server.listen(port, '127.0.0.1'), 'listening');
    expect(await claim(port)).not.toBe(port);
    await once(server.close(), 'close');
  });
});

it('where the kernel does not say which ports it gives, or gives all, none is claimed', async () => {
  const file = join(folder, 'range');
  expect(await claimPort(undefined, file)).toBeUndefined();
  for (const text of ['', 'none\n', '1024\t65535\n']) {
    writeFileSync(file, text);
    expect(await claimPort(undefined, file)).toBeUndefined();
  }
});

it('who had a port a moment ago gets another: its callers may still have connections to that', async () => {
  const ports = new Set<number>();
  for (let i = 0; i < 20; i++) {
    const { port, release } = (await claimPort())!;
    ports.add(port);
    release();
  }
  expect(ports.size).toBe(20);
});

it('a free port stays one process’s for as long as it lives', async () => {
  const port = await freePort();
  expect(await claim(port)).not.toBe(port);
});
