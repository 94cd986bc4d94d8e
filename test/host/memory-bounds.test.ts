// Requires: root, a writable memory control group
/** Checks the memory limits used by the hostile day tests. */
import { spawn } from 'node:child_process';
import { once } from 'node:events';
import { afterEach, beforeEach, expect, it } from 'vitest';
import { GatewayProcess } from './gateway-process.ts';
import { MemoryBounds } from './memory-bounds.ts';

let bounds: MemoryBounds;
beforeEach(() => {
  bounds = new MemoryBounds();
});
afterEach(() => bounds.remove());

/** Runs a program that allocates the given number of MB in the group. Returns how the program ended. */
async function take(group: MemoryBounds, megabytes: number): Promise<number | string> {
  const program = `const held = []; for (let i = 0; i < ${megabytes}; i++) held.push(Buffer.alloc(2 ** 20, 1)); process.exit(held.length === ${megabytes} ? 0 : 1);`;
  const [file, ...args] = [...group.surroundings, process.execPath, '-e', program];
  const [code, signal] = (await once(spawn(file!, args), 'exit')) as [number | null, string | null];
  return code ?? signal ?? 0;
}

it('only processes that exceed the shipped memory limits are killed and counted', async () => {
  expect(await take(bounds, 50)).toBe(0);
  expect(bounds.kills).toBe(0);
  expect(await take(bounds, 250)).toBe('SIGKILL');
  expect(bounds.kills).toBe(1);
});

it('test fails if an agent process was killed for exceeding its memory limit', async () => {
  const agent = new GatewayProcess('http://127.0.0.1:1');
  await take(agent.bounds, 250);
  await expect(agent.dispose()).rejects.toThrow('memory limit: 1 times');
});
