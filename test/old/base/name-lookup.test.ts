import { execFileSync } from 'node:child_process';
import type { LookupAddress } from 'node:dns';
import { chmodSync, closeSync, mkdtempSync, openSync, readdirSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { hostname, tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterEach, beforeEach, describe, expect, it, vi } from 'vitest';
import { NameLookup } from '../../../src/base/name-lookup.ts';

let folder: string;

beforeEach(() => {
  folder = mkdtempSync(join(tmpdir(), 'name-lookup-'));
  // Created before the program starts, because `waitUntil` fails if its callback throws.
  writeFileSync(join(folder, 'log'), '');
});
afterEach(() => rmSync(folder, { recursive: true }));

/** Substitute for `getent` that logs each start and exit, and runs a script in between. */
function programOf(script: string): string {
  const program = join(folder, 'getent');
  writeFileSync(program, `#!/bin/sh\necho "start $2" >> ${folder}/log\n${script}\necho "end $2" >> ${folder}/log\n`);
  chmodSync(program, 0o755);
  return program;
}

const log = () => readFileSync(join(folder, 'log'), 'utf8').split('\n').filter(Boolean);

function ask(names: NameLookup, name: string, options: object = { all: true }): Promise<LookupAddress[] | string> {
  return new Promise((resolve, reject) =>
    names.lookup(name, options, (error, address) => (error ? reject(error) : resolve(address))),
  );
}

describe('name lookup', () => {
  it('resolves names in the hosts file like the system resolver', async () => {
    const names = new NameLookup();
    expect(await ask(names, 'localhost')).toEqual(expect.arrayContaining([{ address: '127.0.0.1', family: 4 }]));
    expect(await ask(names, 'localhost', { family: 4 })).toBe('127.0.0.1');
    expect(await ask(names, '192.0.2.7', {})).toBe('192.0.2.7');
    expect(await ask(names, hostname())).not.toEqual([]);
  });

  it.each(['no-such-name.invalid', '-V', '--help', 'a b', 'x'.repeat(300)])(
    'fails with ENOTFOUND for “%s”',
    async (name) => {
      await expect(ask(new NameLookup({ deadlineMs: 60_000 }), name)).rejects.toMatchObject({ code: 'ENOTFOUND' });
    },
  );

  it('terminates a lookup and its helper process at the deadline', async () => {
    const names = new NameLookup({ program: programOf('exec sleep 1000'), deadlineMs: 50 });
    await expect(ask(names, 'plc.local')).rejects.toMatchObject({ code: 'EAI_AGAIN', hostname: 'plc.local' });
  });

  it('limits the number of helper processes, and starts one per name', async () => {
    const names = new NameLookup({
      program: programOf(`echo "192.0.2.1 STREAM $2"; while [ ! -e ${folder}/go ]; do sleep 0.02; done`),
      limit: 2,
    });
    const asked = ['a', 'b', 'c', 'a', 'a'].map((name) => ask(names, name));
    await vi.waitUntil(() => log().length === 2, { timeout: 10_000 });
    writeFileSync(join(folder, 'go'), '');
    expect(await Promise.all(asked)).toEqual(Array(5).fill([{ address: '192.0.2.1', family: 4 }]));
    expect(log().filter((line) => line.startsWith('start'))).toEqual(
      expect.arrayContaining(['start a', 'start b', 'start c']),
    );
    expect(log()).toHaveLength(6);
  });

  it('fails without crashing the agent if file descriptors are exhausted', async () => {
    const names = new NameLookup({ program: programOf('echo "192.0.2.1 STREAM"') });
    const limit = (count: number) => execFileSync('prlimit', ['--pid', String(process.pid), `--nofile=${count}:`]);
    const before = Number(execFileSync('prlimit', ['--pid', String(process.pid), '-n', '-o', 'SOFT', '--noheadings']));
    // prlimit itself requires descriptors, so the remaining ones are used up afterwards.
    limit(readdirSync('/proc/self/fd').length + 60);
    const taken: number[] = [];
    try {
      for (;;) taken.push(openSync('/dev/null', 'r'));
    } catch {
      await expect(ask(names, 'plc.local')).rejects.toMatchObject({ code: 'EMFILE' });
    } finally {
      for (const fd of taken) closeSync(fd);
      limit(before);
    }
    expect(await ask(names, 'plc.local')).toEqual([{ address: '192.0.2.1', family: 4 }]);
  });

  it("falls back to Node's own lookup if the helper program is missing", async () => {
    const names = new NameLookup({ program: join(folder, 'missing') });
    expect(await Promise.all(['localhost', 'localhost'].map((name) => ask(names, name, { family: 4 })))).toEqual([
      '127.0.0.1',
      '127.0.0.1',
    ]);
  });
});
