import { existsSync, globSync, readFileSync } from 'node:fs';
import { join } from 'node:path';
import { describe, expect, it } from 'vitest';
import { ALONE, sharesProcess } from '../shared-processes.ts';

const ROOT = join(import.meta.dirname, '../..');

/** Statements whose effects would remain for the next file in the same process. */
const LEAVES_BEHIND = [
  /\bprocess\.env(?:\.\w+|\[[^\]]+\])? *=[^=]/,
  /\bdelete process\.env\b/,
  /\bprocess\.(?:chdir|umask|removeAllListeners|std(?:out|err)\.write *=)/,
  /\bvi\.(?:mock|doMock|stubEnv|stubGlobal|useFakeTimers|setSystemTime)\(/,
  /\bvi\.spyOn\((?:process|console|globalThis|\w+\.prototype)\b/,
  /\bglobalThis\.\w+ *=[^=]/,
  /\bset(?:GlobalDispatcher|GlobalOrigin|DefaultResultOrder)\(/,
];

const leavesBehind = (text: string) => LEAVES_BEHIND.some((pattern) => pattern.test(text));

describe('test files that share a process', () => {
  const files = globSync('test/**/*.test.ts', { cwd: ROOT }).filter(sharesProcess);

  it('do not change process-wide state', () => {
    expect(files.length).toBeGreaterThan(100);
    const own = join('test/house', import.meta.filename.split('/').at(-1)!);
    const left = files.filter((file) => file !== own && leavesBehind(readFileSync(join(ROOT, file), 'utf8')));
    expect(left, 'name them in ALONE of test/shared-processes.ts').toEqual([]);
  });

  it.each([
    ["process.env.HTTP_PROXY = 'http://127.0.0.1:1';", true],
    ['process.env = before;', true],
    ["vi.mock('node:crypto', async (original) => {", true],
    ["vi.spyOn(process.stdout, 'write')", true],
    ["vi.spyOn(SessionFile.prototype, 'write')", true],
    ["vi.spyOn(sandbox.site, 'all')", false],
    ["if (process.env.CI === 'true') process.env.PATH;", false],
  ])('%s: %s', (text, expected) => {
    expect(leavesBehind(text)).toBe(expected);
  });

  it('register hooks in the test file or in functions that it calls, because a module is loaded only once', () => {
    const beside = globSync('test/**/*.ts', { cwd: ROOT }).filter((file) => !file.endsWith('.test.ts'));
    const hooks = /^(?:before|after)(?:Each|All)\(/m;
    expect(beside.filter((file) => hooks.test(readFileSync(join(ROOT, file), 'utf8')))).toEqual([]);
  });

  it('include all files except the listed exceptions, which exist and require their own process', () => {
    const needless = ALONE.filter((file) => !existsSync(join(ROOT, file)) || files.includes(file));
    expect(needless).toEqual([]);
  });
});
