import { execFile } from 'node:child_process';
import { join } from 'node:path';
import { describe, expect, it } from 'vitest';

const SOAK = join(import.meta.dirname, '../../scripts/soak.d/soak.ts');

function soak(...args: string[]): Promise<{ code: number; text: string }> {
  return new Promise((resolve) => {
    execFile(process.execPath, [SOAK, ...args], { timeout: 290_000 }, (error, stdout, stderr) => {
      resolve({ code: error === null ? 0 : Number(error.code), text: stdout + stderr });
    });
  });
}

describe('scripts/soak', () => {
  it('runs for as long as told, prints its seed, and counts both sides', { timeout: 300_000 }, async () => {
    const { code, text } = await soak('6s', '--seed', '2');
    expect(text).toMatch(/^soak: 6 s, seed 2\n/);
    expect(text).toMatch(/round 1 \(seed 2\): [1-9]\d* kills,/);
    expect(text).toContain('nothing missing, repeated or strange\nsoak: all is well after 1 round, seed 2');
    expect(code).toBe(0);
  });

  it('says how it is called', async () => {
    expect(await soak('soon')).toMatchObject({ code: 2, text: expect.stringContaining('usage: scripts/soak') });
  });
});
