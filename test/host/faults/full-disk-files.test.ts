// Requires: root, mkfs.ext4
import { cpSync, existsSync, globSync, mkdirSync, readFileSync, rmSync, statSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { afterEach, beforeEach, describe, expect, it } from 'vitest';
import { AgentProcess } from '../../e2e/harness/agent-process.ts';
import { runVerb } from '../../e2e/harness/verb.ts';
import { SmallDisk } from './small-disk.ts';

/** No server listens there. */
const NO_PLATFORM = 'http://127.0.0.1:9';

let disk: SmallDisk;
let gateway: { config: string };
/** Addresses of the gateway on the small disk. */
let addresses: string;

beforeEach(() => {
  disk = new SmallDisk(8);
  gateway = { config: join(disk.mount, 'config') };
  addresses = [
    `STATE_DIR=${disk.state}`,
    ...['INGEST', 'OPS', 'WEBHOOK'].map((name) => `${name}_LISTEN=unix:${join(disk.folder, name)}.sock`),
  ].join('\n');
});
afterEach(() => disk.dispose());

/** Contents of the configuration files, by name. Files left behind are included. */
function files(): Record<string, string> {
  const names = globSync('**', { cwd: gateway.config }).sort();
  const paths = names.map((name) => [name, join(gateway.config, name)] as const);
  return Object.fromEntries(
    paths.filter(([, path]) => statSync(path).isFile()).map(([name, path]) => [name, readFileSync(path, 'utf8')]),
  );
}

/** Copies a configuration folder in place of the present one. */
function reset(from: string): void {
  rmSync(gateway.config, { recursive: true, force: true });
  cpSync(from, gateway.config, { recursive: true, preserveTimestamps: true });
}

/** Replaces the ballast so that this much space is free. */
function leave(bytes: number): void {
  if (existsSync(join(disk.mount, 'ballast'))) disk.free();
  disk.fill(bytes);
}

/** Runs a command with each number of free kilobytes. Every file is the previous or the new one. */
async function expectWhole(
  rooms: readonly number[],
  args: readonly string[],
  before: string,
  after: Record<string, string>,
): Promise<void> {
  let failures = 0;
  for (const room of rooms) {
    if (existsSync(join(disk.mount, 'ballast'))) disk.free();
    reset(before);
    const previous = files();
    leave(room * 1024);
    const { status, stderr } = await runVerb(gateway, ...args);
    if (status !== 0) {
      failures++;
      expect(stderr).toContain('the disk is full');
      expect(stderr).toContain('Free up space');
    }
    const now = files();
    const wrong = Object.entries(now).filter(([name, text]) => text !== previous[name] && text !== after[name]);
    expect([room, wrong, Object.keys(previous).filter((name) => !(name in now))]).toEqual([room, [], []]);
    if (room === 0) expect([status, now]).toEqual([1, previous]);
    if (status === 0) expect(now).toEqual(after);
  }
  expect(failures).toBeGreaterThan(1);
  disk.free();
  expect(await runVerb(gateway, ...args)).toMatchObject({ status: 0 });
  expect(files()).toEqual(after);
}

describe('tagferry setup on a full disk', () => {
  it('fails, and leaves every setting, tag and secret whole', async () => {
    const answers = join(disk.folder, 'answers');
    const answer = (word: string) =>
      writeFileSync(
        answers,
        `PLATFORM_URL=${NO_PLATFORM}\nCLIENT_ID=${word}\nCLIENT_SECRET=secret-${word}\nTECHNICAL_USERNAME=user\n` +
          `TECHNICAL_PASSWORD=password-${word}\nOPS_TOKEN=token-of-more-than-16-letters\n${addresses}\nFIRST_TAG=${word}\nFIRST_TAG_ASSET=${word === 'one' ? 881 : 882}\n`,
        { mode: 0o600 },
      );
    const setup = ['setup', '--no-login', '--answers', answers];
    answer('one');
    // The very first setup has no folder for secrets.
    leave(0);
    const first = await runVerb({ config: disk.mount }, ...setup);
    expect(first).toMatchObject({ status: 1 });
    expect(first.stderr).toContain('the disk is full');
    disk.free();
    mkdirSync(gateway.config);
    expect(await runVerb(gateway, ...setup)).toMatchObject({ status: 0 });
    const before = join(disk.folder, 'before');
    cpSync(gateway.config, before, { recursive: true });
    answer('two');
    expect(await runVerb(gateway, ...setup)).toMatchObject({ status: 0 });
    await expectWhole([0, 4, 8], setup, before, files());
  });
});

describe('tagferry restore on a full disk', () => {
  it('fails, leaves every file of the configuration whole, and succeeds when there is space', async () => {
    const original = new AgentProcess(NO_PLATFORM, { tags: 'tags:\n  FT-101: { asset: 881, values: { flow: {} } }\n' });
    try {
      mkdirSync(join(original.config, 'tags.d'));
      const line = Array.from({ length: 2_000 }, (_, at) => `  LINE-${at}: { asset: ${1_000 + at} }\n`);
      writeFileSync(join(original.config, 'tags.d/line.yaml'), `tags:\n${line.join('')}`);
      const before = join(disk.folder, 'before');
      cpSync(original.config, before, { recursive: true });
      // Settings, tags and reactions of the gateway before it is replaced.
      for (const name of ['agent.env', 'tags.yaml', 'tags.d/line.yaml', 'reactions.yaml']) {
        const path = join(before, name);
        writeFileSync(path, `${readFileSync(path, 'utf8')}# ${'previous '.repeat(500)}\n`);
      }
      mkdirSync(join(before, 'agent.env.d'));
      writeFileSync(join(before, 'agent.env.d/own.env'), `${addresses}\n`, { mode: 0o600 });
      const backup = async (name: string) => {
        const file = join(disk.folder, name);
        expect(await runVerb(original, 'backup', file)).toMatchObject({ status: 0 });
        return ['restore', file, '--yes', '--lose-values'];
      };
      reset(before);
      // Without state, the configuration is the first thing that is written.
      const configuration = await backup('configuration.tar');
      expect(await runVerb(gateway, ...configuration)).toMatchObject({ status: 0 });
      const after = files();
      await expectWhole([0, 4, 16, 40], configuration, before, after);
      await original.start();
      expect((await original.push([{ tag: 'FT-101', key: 'flow', value: 1 }])).status).toBe(204);
      expect(await original.end('SIGTERM')).toBe(0);
      await expectWhole([0, 16], await backup('gateway.tar'), before, after);
      const { stdout } = await runVerb(gateway, 'buffer', 'ls', '--json');
      expect(JSON.parse(stdout)).toMatchObject([{ tag: 'FT-101', values: 1 }]);
    } finally {
      await original.dispose();
    }
  });
});

describe('tagferry doctor --bundle on a full disk', () => {
  it('fails, and leaves the previous archive unchanged', async () => {
    const file = join(disk.mount, 'support.tar.gz');
    writeFileSync(file, 'previous archive');
    mkdirSync(gateway.config);
    disk.fill();
    const { status, stderr } = await runVerb(gateway, 'doctor', '--bundle', file);
    expect([status, readFileSync(file, 'utf8')]).toEqual([1, 'previous archive']);
    expect(stderr).toContain('cannot write the archive');
  });
});
