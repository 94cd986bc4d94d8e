/** State folder of `restore`, which the agent uses afterwards, for each form of STATE_DIR. */
import { existsSync, mkdirSync, mkdtempSync, readdirSync, rmSync, writeFileSync } from 'node:fs';
import { hostname, tmpdir } from 'node:os';
import { join } from 'node:path';
import { beforeEach, describe, expect, it, onTestFinished } from 'vitest';
import { ValueColumns } from '../../../src/buffer/format/value-columns.ts';
import { freshFolder } from '../../fresh-folder.ts';
import { commitColumns } from '../../unit/doubles/commit-columns.ts';
import { openFlow } from '../../unit/doubles/open-flow.ts';
import { runVerb } from './verb-run.ts';

const folder = freshFolder('restore-place');
let config: string;

beforeEach(() => {
  config = join(folder.path, 'config');
  mkdirSync(join(config, 'agent.env.d'), { recursive: true });
  writeFileSync(join(config, 'tags.yaml'), 'tags: {}\n');
  writeFileSync(join(config, 'reactions.yaml'), 'reactions: []\n');
});

async function fill(stateDir: string): Promise<void> {
  mkdirSync(stateDir, { recursive: true });
  const flow = await openFlow(stateDir);
  const columns = new ValueColumns();
  for (let i = 0; i < 5; i++) columns.add(flow.catalogue.idOf(1, 'a', undefined, undefined), 1e12 + i, i, 1);
  await commitColumns(flow.committer, columns);
  await flow.stop();
}

/** Backs up the gateway, deletes it and restores it. */
async function replace(stateDir: string, environment: NodeJS.ProcessEnv = {}) {
  const file = join(folder.path, 'gateway.tar');
  expect((await runVerb(['backup', file, '--config', config], environment)).status).toBe(0);
  rmSync(stateDir, { recursive: true });
  rmSync(config, { recursive: true });
  return runVerb(['restore', file, '--yes', '--json', '--config', config], environment);
}

async function values(environment: NodeJS.ProcessEnv = {}): Promise<number> {
  const { stdout } = await runVerb(['buffer', 'ls', '--json', '--config', config], environment);
  return (JSON.parse(stdout) as { values: number }[]).reduce((sum, row) => sum + row.values, 0);
}

describe('restored state folder', () => {
  it.each<[string, line: (path: string) => string, name: string, more?: Record<string, string>]>([
    ['with a blank, in double quotes', (path) => `STATE_DIR="${path}"`, 'my disk'],
    ['with a blank, without quotes', (path) => `STATE_DIR=${path} # the disk`, 'my disk'],
    ['with a number sign, in single quotes', (path) => `export STATE_DIR = '${path}'`, 'disk #1'],
    ['named by the host', (path) => `STATE_DIR=${path.replace(hostname(), `\${HOSTNAME}`)}`, `of-${hostname()}`],
    [
      'named by the environment',
      (path) => `STATE_DIR=${path.replace('line2', `\${LINE}`)}`,
      'line2',
      { LINE: 'line2' },
    ],
    ['with a quote in it', (path) => `STATE_DIR="${path.replaceAll('"', '\\"')}"`, 'a"b'],
  ])('%s, is the folder that the agent opens', async (_, line, name, environment) => {
    const stateDir = join(folder.path, name);
    writeFileSync(join(config, 'agent.env'), `${line(stateDir)}\n`);
    await fill(stateDir);
    expect((await replace(stateDir, environment)).status).toBe(78);
    expect(existsSync(join(stateDir, 'buffer.db'))).toBe(true);
    expect(await values(environment)).toBe(5);
  });

  it('is the folder specified in an existing drop-in', async () => {
    const [old, own] = [join(folder.path, 'old'), join(folder.path, 'own')];
    writeFileSync(join(config, 'agent.env'), `STATE_DIR=${old}\n`);
    await fill(old);
    const file = join(folder.path, 'gateway.tar');
    expect((await runVerb(['backup', file, '--config', config])).status).toBe(0);
    rmSync(old, { recursive: true });
    writeFileSync(join(config, 'agent.env.d', 'own.env'), `STATE_DIR=${own}\n`);
    await runVerb(['restore', file, '--yes', '--config', config]);
    expect([existsSync(old), await values()]).toEqual([false, 5]);
  });

  it('is backed up with one note per file outside the folder, even if its name contains a space', async () => {
    // Not in /dev/shm, because files below /dev count as part of the system.
    const elsewhere = mkdtempSync(join(tmpdir(), 'tagferry-elsewhere-'));
    onTestFinished(() => rmSync(elsewhere, { recursive: true }));
    const file = join(elsewhere, 'site ca.pem');
    writeFileSync(file, 'a certificate\n');
    const stateDir = join(folder.path, 'state');
    writeFileSync(join(config, 'agent.env'), `STATE_DIR=${stateDir}\nPLATFORM_CA="${file}"\n`);
    await fill(stateDir);
    const { stdout } = await runVerb(['backup', join(folder.path, 'gateway.tar'), '--json', '--config', config]);
    expect((JSON.parse(stdout) as { left_out: { file: string }[] }).left_out).toMatchObject([{ file }]);
  });

  it('is not guessed if its name contains an undefined variable', async () => {
    const stateDir = join(folder.path, 'line2');
    writeFileSync(join(config, 'agent.env'), `STATE_DIR=${folder.path}/\${LINE}\n`);
    await fill(stateDir);
    const file = join(folder.path, 'gateway.tar');
    expect((await runVerb(['backup', file, '--config', config], { LINE: 'line2' })).status).toBe(0);
    rmSync(stateDir, { recursive: true });
    const before = readdirSync(folder.path);
    const { status, stderr } = await runVerb(['restore', file, '--yes', '--config', config]);
    expect([status, stderr.includes('LINE')]).toEqual([1, true]);
    expect(readdirSync(folder.path)).toEqual(before);
  });
});
