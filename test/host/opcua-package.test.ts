import { execFileSync, spawnSync } from 'node:child_process';
import {
  copyFileSync,
  cpSync,
  mkdirSync,
  mkdtempSync,
  readFileSync,
  rmSync,
  symlinkSync,
  writeFileSync,
} from 'node:fs';
import { tmpdir } from 'node:os';
import { dirname, join } from 'node:path';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { MAIN } from '../built-agent.ts';
import { OpcuaServer } from '../e2e/harness/opcua-server.ts';

const ROOT = join(import.meta.dirname, '../..');
const folder = mkdtempSync(join(tmpdir(), 'tagferry-opcua-package-'));
const config = join(folder, 'config');
const agent = join(folder, 'usr/lib/tagferry');
const server = new OpcuaServer();

beforeAll(async () => {
  cpSync(dirname(MAIN), join(agent, 'dist'), { recursive: true });
  copyFileSync(join(ROOT, 'package.json'), join(agent, 'package.json'));
  symlinkSync(join(ROOT, 'node_modules'), join(agent, 'node_modules'));
  mkdirSync(config);
  await server.start();
  const env = {
    PLATFORM_URL: 'http://127.0.0.1:9',
    CLIENT_ID: 'a',
    CLIENT_SECRET: 'b',
    STATE_DIR: join(folder, 'state'),
  };
  const technical = { TECHNICAL_USERNAME: 'c', TECHNICAL_PASSWORD: 'd' };
  const lines = Object.entries({ ...env, ...technical }).map(([key, value]) => `${key}=${value}\n`);
  writeFileSync(join(config, 'agent.env'), lines.join(''), { mode: 0o600 });
  writeFileSync(
    join(config, 'tags.yaml'),
    `sources: { cell: { opcua: "${server.url}" } }\ntags: { T-1: { asset: 881, values: { flow: { unit: 1, from: cell, node: "ns=1;s=Line1.Flow" } } } }\n`,
  );
}, 300_000);
afterAll(async () => {
  await server.dispose();
  rmSync(folder, { recursive: true, force: true });
});

function tagferry(...args: string[]): string {
  const { status, stdout, stderr } = run(args);
  if (status !== 0) throw new Error(`${args[0]} ended with ${status}: ${stderr}`);
  return stdout;
}

/** Returns the components of its CycloneDX list, which must have hashes and be reachable from the package. */
function componentsOf(): string[] {
  const file = join(folder, 'opcua.cdx.json');
  const env = { ...process.env, SOURCE_DATE_EPOCH: '1700000000' };
  execFileSync(process.execPath, [join(ROOT, 'scripts/release.d/sbom.ts'), ROOT, 'all', '0.1.0', folder, file], {
    env,
  });
  const { metadata, components, dependencies } = JSON.parse(readFileSync(file, 'utf8')) as {
    metadata: { component: { name: string; 'bom-ref': string } };
    components: { 'bom-ref': string; hashes?: object[] }[];
    dependencies: { ref: string; dependsOn: string[] }[];
  };
  expect(metadata.component.name).toBe('tagferry-opcua');
  expect(components.filter(({ hashes }) => hashes?.length !== 1)).toEqual([]);
  const reached = new Set([metadata.component['bom-ref']]);
  for (const ref of reached) {
    for (const next of dependencies.find((one) => one.ref === ref)?.dependsOn ?? []) reached.add(next);
  }
  const refs = components.map((one) => one['bom-ref']);
  expect(refs.filter((ref) => !reached.has(ref))).toEqual([]);
  return refs;
}

/** Returns the output, regardless of the exit status. */
const attempt = (...args: string[]): string => run(args).stdout;

function run(args: string[]) {
  const environment = Object.fromEntries(Object.entries(process.env).filter(([name]) => !name.startsWith('NODE_')));
  const command = [join(agent, 'dist/main.js'), ...args, '--config', config];
  return spawnSync(process.execPath, command, { env: { ...environment, NO_COLOR: '1' }, encoding: 'utf8' });
}

describe('package tagferry-opcua', { timeout: 300_000 }, () => {
  it('reads values if installed, and is otherwise reported as missing by check', () => {
    expect(tagferry('check')).toContain('the package tagferry-opcua is not installed, run apt install tagferry-opcua');
    expect(attempt('doctor')).toMatch(
      /cell: the package tagferry-opcua is not installed\n.*apt install tagferry-opcua/,
    );
    const output = execFileSync(join(ROOT, 'scripts/build-deb'), [
      'opcua',
      '--fast',
      '--version',
      '0.1.0',
      '--out',
      folder,
    ]);
    const deb = String(output).trim();
    expect(deb).toBe(join(folder, 'tagferry-opcua_0.1.0_all.deb'));
    const control = execFileSync('dpkg-deb', ['--field', deb], { encoding: 'utf8' });
    expect(control).toMatch(/^Architecture: all$/m);
    expect(control).toMatch(/^Depends: tagferry \(= 0\.1\.0\)$/m);
    execFileSync('dpkg-deb', ['-x', deb, folder]);
    const licences = readFileSync(join(folder, 'usr/share/doc/tagferry-opcua/licences.txt'), 'utf8');
    expect(licences).toMatch(/^node-opcua-client \d+\.\d+\.\d+ \(MIT\)$/m);
    const packages = [...licences.matchAll(/^(\S+) \d+\.\d+\.\d+\S* \((.+)\)$/gm)].map(([, name, licence]) => [
      name,
      licence,
    ]);
    expect(packages.length).toBeGreaterThan(50);
    const permissive = /^(0BSD|Apache-2\.0|BSD-[23]-Clause|ISC|MIT|Unlicense)$/;
    expect(packages.filter(([, licence]) => !permissive.test(licence!))).toEqual([['precond', 'see below']]);
    expect(licences).toContain('This code is free to use under the terms of the [MIT license]');
    expect(componentsOf().length).toBe(packages.length);
    expect(tagferry('check')).not.toContain('not installed');
    expect(tagferry('sources', 'trust', 'cell', '--yes')).toContain('Certificate stored as trusted:');
    const [flow] = JSON.parse(tagferry('sources', 'test', '--json')) as Record<string, unknown>[];
    expect(flow).toMatchObject({ key: 'flow', raw: 12.5, quality: 'good', problem: null });
  });

  it('is suggested by the agent package, which contains none of its libraries', () => {
    expect(readFileSync(join(ROOT, 'scripts/deb/control.in'), 'utf8')).toMatch(/^Suggests: .*\btagferry-opcua\b/m);
    const lock = JSON.parse(readFileSync(join(ROOT, 'package-lock.json'), 'utf8')) as {
      packages: Record<string, { dev?: boolean }>;
    };
    const libraries = Object.entries(lock.packages).filter(([path]) => path.includes('node_modules/node-opcua'));
    expect(libraries.length).toBeGreaterThan(10);
    expect(libraries.filter(([, { dev }]) => dev !== true)).toEqual([]);
  });
});
