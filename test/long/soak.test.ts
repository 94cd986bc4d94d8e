// Long: 9 min
import { spawn } from 'node:child_process';
import { join } from 'node:path';
import { expect, it } from 'vitest';

const SOAK = join(import.meta.dirname, '../../scripts/soak.d/soak.ts');
/** The first round of each run draws its own; what it prints repeats it. */
const MINUTES = 8;

it('minutes of kills, outages, rotations and strangers lose, repeat and invent nothing', {
  timeout: 3 * MINUTES * 60_000,
}, async () => {
  const soak = spawn(process.execPath, [SOAK, `${MINUTES}m`], { stdio: ['ignore', 'pipe', 'pipe'] });
  let text = '';
  for (const stream of [soak.stdout, soak.stderr]) {
    stream.setEncoding('utf8').on('data', (chunk: string) => {
      text += chunk;
    });
  }
  const code = await new Promise((resolve) => soak.once('close', resolve));
  expect(text).toContain('nothing missing, repeated or strange\nsoak: all is well after');
  expect(code, text).toBe(0);
});
