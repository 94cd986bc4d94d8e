import { spawnSync } from 'node:child_process';
import { chmodSync, mkdirSync, rmSync, statSync, symlinkSync } from 'node:fs';
import { join } from 'node:path';
import { describe, expect, it } from 'vitest';
import { MAIN } from '../../built-agent.ts';
import { COMPILED_CODE } from '../../host/made-once.ts';
import { ENOUGH, type Files, makeFolder } from '../../unit/config/folder.ts';

const ROOT = join(import.meta.dirname, '../../..');

/** Runs `check` in a separate process, because its exit status and output are documented. */
function runCheck(files: Files, environment: Record<string, string>, ...options: string[]) {
  const folder = makeFolder(files);
  const args = [MAIN, '--config', folder, 'check', ...options];
  const run = spawnSync(process.execPath, args, {
    cwd: ROOT,
    env: { ...COMPILED_CODE, ...environment },
    encoding: 'utf8',
  });
  return { ...run, stdout: run.stdout.replaceAll(folder, 'DIR') };
}

const TAGS = 'tags: { T: { asset: 1 } }\n';

describe('tagferry check', () => {
  it('exits with 0 and summarizes a valid configuration', () => {
    const { status, stdout, stderr } = runCheck({ 'tags.yaml': TAGS }, ENOUGH);
    expect({ status, stdout, stderr }).toEqual({
      status: 0,
      stdout: 'DIR: 0 problems, 1 tag, 0 sources, 0 reactions\n',
      stderr: '',
    });
  });

  it('exits with 0 if there are only warnings, and marks them', () => {
    const { status, stdout } = runCheck({ 'tags.yaml': '' }, ENOUGH);
    expect(status).toBe(0);
    expect(stdout).toMatch(/^DIR\/tags\.yaml:1:1: warning: .+\nDIR: 0 problems, 1 warning, 0 tags/);
  });

  it('exits with 78 and prints every problem on standard output', () => {
    const { status, stdout } = runCheck({ 'agent.env': 'FOO=1\n', 'tags.yaml': 'tags: { T: { aset: 1 } }\n' }, ENOUGH);
    expect(status).toBe(78);
    expect(stdout.split('\n')).toEqual([
      'DIR/agent.env:1:1: FOO is not a known key, remove it (the nearest known is NO_PROXY)',
      'DIR/tags.yaml:1:14: unknown member "aset", use "asset"',
      'DIR: 2 problems',
      '',
    ]);
  });

  it('prints problems as objects with --json', () => {
    const { status, stdout } = runCheck({ 'tags.yaml': 'tags: { T: { aset: 1 } }\n' }, ENOUGH, '--json');
    expect(status).toBe(78);
    expect(JSON.parse(stdout)).toEqual({
      directory: 'DIR',
      ok: false,
      unread: [],
      problems: [
        {
          file: 'DIR/tags.yaml',
          line: 1,
          column: 14,
          text: 'aset',
          reason: 'unknown member "aset"',
          instead: 'use "asset"',
          severity: 'error',
        },
      ],
      warnings: [],
    });
  });

  it('reports a state folder that startup would reject or restrict, without changing it', () => {
    const folder = makeFolder({});
    const state = join(folder, 'state');
    mkdirSync(state);
    chmodSync(state, 0o777);
    const judge = () => runCheck({ 'tags.yaml': TAGS }, { ...ENOUGH, STATE_DIR: state });
    const open = judge();
    expect([open.status, open.stdout]).toEqual([
      0,
      expect.stringContaining('warning: other users can write to the state'),
    ]);
    expect(open.stdout).toContain('(mode 0777), and the agent will change its mode to 0700 on the next start');
    expect(statSync(state).mode & 0o777).toBe(0o777);
    symlinkSync('/etc/hostname', join(state, 'buffer.db'));
    const linked = judge();
    expect([linked.status, linked.stdout]).toEqual([78, expect.stringContaining(`buffer.db is a symbolic link`)]);
    rmSync(join(state, 'buffer.db'));
    chmodSync(state, 0o1777);
    const shared = judge();
    expect([shared.status, shared.stdout]).toEqual([
      78,
      expect.stringContaining('(mode 1777), set STATE_DIR to a dedicated folder'),
    ]);
  });

  it('reads the folder in TAGFERRY_CONFIG', () => {
    const folder = makeFolder({ 'tags.yaml': TAGS });
    const run = spawnSync(process.execPath, [MAIN, 'check'], {
      cwd: ROOT,
      env: { ...COMPILED_CODE, ...ENOUGH, TAGFERRY_CONFIG: folder },
      encoding: 'utf8',
    });
    expect(run.stdout).toBe(`${folder}: 0 problems, 1 tag, 0 sources, 0 reactions\n`);
  });
});
