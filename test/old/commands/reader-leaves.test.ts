import { spawn } from 'node:child_process';
import { join } from 'node:path';
import { describe, expect, it } from 'vitest';
import { MAIN } from '../../built-agent.ts';

const ROOT = join(import.meta.dirname, '../../..');

/** Runs a verb whose reader closes the pipe early. Returns the exit status and standard error. */
function unread(args: readonly string[]): Promise<{ status: number | null; stderr: string }> {
  const child = spawn(process.execPath, [MAIN, ...args], { cwd: ROOT });
  child.stdout.destroy();
  let stderr = '';
  child.stderr.setEncoding('utf8').on('data', (text: string) => {
    stderr += text;
  });
  return new Promise((resolve) => child.once('close', (status) => resolve({ status, stderr })));
}

describe('output to a closed pipe', () => {
  it.each([['--help'], ['sandbox cause --help'], ['check --json --config config'], ['doctor --json --config config']])(
    'causes no error message: %s | head',
    async (line) => {
      const { stderr } = await unread(line.split(' '));
      expect(stderr).toBe('');
    },
  );
});
