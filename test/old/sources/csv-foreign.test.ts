import {
  chmodSync,
  chownSync,
  existsSync,
  mkdirSync,
  readdirSync,
  statSync,
  symlinkSync,
  writeFileSync,
} from 'node:fs';
import { join } from 'node:path';
import { afterEach, beforeEach, describe, expect, it } from 'vitest';
import { Sandbox } from '../../../src/sandbox/sandbox.ts';
import type { SourceReport } from '../../../src/sources/status.ts';
import { AgentProcess } from '../../e2e/harness/agent-process.ts';
import { HungShare } from '../../e2e/harness/hung-share.ts';

const NOBODY = 65_534;

let sandbox: Sandbox;
let agent: AgentProcess;
let share: HungShare | undefined;

beforeEach(async () => {
  sandbox = new Sandbox({ accessTokenLifeS: 20, limits: { perUser: 0, perApiKey: 0, perAddress: 0 } });
  await sandbox.start();
  agent = new AgentProcess(sandbox.url);
});
afterEach(async () => {
  await share?.unmount();
  share = undefined;
  await agent.dispose();
  await sandbox.stop();
});

const folderOf = (name: string) => join(agent.folder, name);
const arrived = (key: string) => sandbox.values.list(881, key).map(({ value }) => value);
const below = (folder: string) => (existsSync(folder) ? readdirSync(folder) : []);
const ROW = 'time,n\n2026-11-21T00:00:00Z,';

/** Configures sources that read column `n` of files in the folder with their name. */
function configure(names: readonly string[], more = 'settle: 50ms', env: Record<string, string> = {}): void {
  const sources = names.map((name) => `  ${name}: { csv: "${folderOf(name)}", time_column: time, ${more} }\n`);
  const values = names.map((name) => `${name}: { unit: 1, from: ${name}, column: n }`);
  for (const name of names) mkdirSync(folderOf(name), { recursive: true });
  agent.write(sandbox.url, {
    env,
    tags: `sources:\n${sources.join('')}tags: { T-1: { asset: 881, values: { ${values.join(', ')}, pushed: { unit: 1 } } } }\n`,
  });
}

async function source(name: string): Promise<SourceReport> {
  return ((await agent.status()).sources as SourceReport[]).find((one) => one.name === name)!;
}

describe('CSV folder writable by other users', () => {
  it('passes its permissions on to new folders, and those of data files to reports', async () => {
    configure(['team', 'shared']);
    chmodSync(folderOf('team'), 0o2770);
    chmodSync(folderOf('shared'), 0o1777);
    const dropped = { team: 0o660, shared: 0o666 };
    for (const [name, mode] of Object.entries(dropped)) {
      writeFileSync(folderOf(`${name}/x.csv`), `${ROW}1\n`);
      chmodSync(folderOf(`${name}/x.csv`), mode);
    }
    await agent.start();
    const names = Object.keys(dropped);
    await agent.until(() => names.every((name) => existsSync(folderOf(`${name}/done/x.csv`))), 'the files are moved');
    const modeOf = (path: string) => statSync(folderOf(path)).mode & 0o7777;
    expect(names.map((name) => modeOf(`${name}/done`))).toEqual([0o2770, 0o1777]);
    expect(names.map((name) => modeOf(`${name}/done/x.csv.report.txt`))).toEqual([0o640, 0o644]);
  });

  it.each([
    ['is a link', (done: string, elsewhere: string) => symlinkSync(elsewhere, done)],
    [
      'belongs to another user',
      (done: string) => {
        mkdirSync(done);
        chmodSync(done, 0o777);
        chownSync(done, NOBODY, NOBODY);
      },
    ],
    [
      'is inaccessible to the service',
      (done: string) => {
        mkdirSync(done);
        chmodSync(done, 0o700);
        chownSync(done, NOBODY, NOBODY);
      },
    ],
  ])('moves no file to a done folder that %s', async (_what, prepare) => {
    configure(['drop']);
    // Without this capability, root has the same permissions as other users.
    agent.surroundings = ['setpriv', '--bounding-set=-dac_override,-dac_read_search', '--'];
    const elsewhere = join(agent.folder, 'elsewhere');
    mkdirSync(elsewhere);
    prepare(folderOf('drop/done'), elsewhere);
    writeFileSync(folderOf('drop/x.csv'), `${ROW}1\n`);
    await agent.start();
    await agent.until(() => agent.logged('csv.not_moved').length > 0, 'the file cannot be moved');
    await agent.until(() => arrived('drop').length === 1, 'its value is delivered');
    expect([...below(elsewhere), ...below(folderOf('drop/done'))]).toEqual([]);
    expect((await source('drop')).hint).toContain('Rename or remove');
  });

  it('causes an error if the sticky bit prevents moving a file owned by another user', async () => {
    configure(['drop']);
    agent.surroundings = ['setpriv', '--bounding-set=-dac_override,-dac_read_search,-fowner', '--'];
    chmodSync(folderOf('drop'), 0o1777);
    chownSync(folderOf('drop'), NOBODY, NOBODY);
    writeFileSync(folderOf('drop/x.csv'), `${ROW}1\n`);
    chownSync(folderOf('drop/x.csv'), NOBODY, NOBODY);
    chmodSync(folderOf('drop/x.csv'), 0o644);
    await agent.start();
    await agent.until(() => agent.logged('csv.not_moved').length > 0, 'the file cannot be moved');
    expect((await source('drop')).hint).toContain(`chmod -t ${folderOf('drop')}`);
    expect(below(folderOf('drop/done'))).toEqual([]);
  });

  it.each(['settle: 50ms', 'tail: true'])('is read even if one file is unreadable (%s)', async (more) => {
    configure(['drop'], more);
    // Without this capability, root has the same permissions as other users.
    agent.surroundings = ['setpriv', '--bounding-set=-dac_override,-dac_read_search', '--'];
    for (let n = 0; n < 10; n++) writeFileSync(folderOf(`drop/${n}.csv`), `${ROW}${n}\n`);
    for (const name of ['a.csv', 'z.csv']) {
      writeFileSync(folderOf(`drop/${name}`), `${ROW}99\n`);
      chmodSync(folderOf(`drop/${name}`), 0);
    }
    await agent.start();
    await agent.until(() => arrived('drop').length > 0, 'values are delivered');
    await agent.until(async () => (await source('drop')).stored === 10, 'all other files are read');
    const reported = () => agent.logged('csv.unreadable').flatMap(({ file, files }) => (files as string[]) ?? [file]);
    await agent.until(() => reported().includes('a.csv') && reported().includes('z.csv'), 'both files are reported');
    expect(reported().length).toBe(2);
    expect(agent.logged('csv.folder')).toEqual([]);
    expect(await source('drop')).toMatchObject({ connected: true, problem: expect.stringContaining('a.csv') });
    for (const name of ['a.csv', 'z.csv']) chmodSync(folderOf(`drop/${name}`), 0o644);
    await agent.until(async () => (await source('drop')).stored === 12, 'both files are read');
  });
});

describe('CSV source on an unresponsive network share', () => {
  it('delays nothing else, and reads files when the share responds again', async () => {
    const names = ['a', 'b', 'c', 'd'];
    configure(names);
    await agent.start();
    await agent.until(
      async () => (await Promise.all(names.map(source))).every(({ connected }) => connected),
      'all folders are listed',
    );
    share = await HungShare.mount(names.map(folderOf));
    const tokens = () => sandbox.requests.list().filter(({ path }) => path.endsWith('/token')).length;
    const before = tokens();
    const values = Array.from({ length: 50 }, (_, n) => ({ tag: 'T-1', key: 'pushed', value: n }));
    expect((await agent.push(values)).status).toBe(204);
    await agent.until(() => arrived('pushed').length === 50, 'pushed values are delivered');
    await agent.until(() => tokens() > before, 'the token is renewed');
    await agent.until(() => agent.logged('csv.folder').length === names.length, 'all folders are reported');
    expect((await source('a')).problem).toContain('does not respond');
    expect(await agent.end('SIGTERM')).toBe(0);

    await agent.start();
    await share.unmount();
    writeFileSync(folderOf('a/x.csv'), `${ROW}7\n`);
    await agent.until(() => arrived('a').includes(7), 'a file is read again');
  });
});
