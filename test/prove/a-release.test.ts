// Long: 7 min
/**
 * Checks the output of scripts/release with the tools that users run: apt, gpgv, sha256sum, tar, and a kernel that runs
 * the image.
 */
import { execFile } from 'node:child_process';
import { createHash } from 'node:crypto';
import {
  chmodSync,
  chownSync,
  copyFileSync,
  cpSync,
  existsSync,
  mkdirSync,
  mkdtempSync,
  readdirSync,
  readFileSync,
  rmSync,
  writeFileSync,
} from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { promisify } from 'node:util';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { readChangelog } from '../../scripts/changelog.ts';
import { freePort } from '../../src/base/port-claim.ts';
import { SANDBOX_CREDENTIALS, Sandbox } from '../../src/sandbox/sandbox.ts';
import { aptProxy, mirror, suiteOfThisMachine } from '../host/debian-tree.ts';
import { until } from '../host/machine.ts';
import { CHECKOUT } from '../host/made-once.ts';
import { nativeParts, PARTS } from '../host/native-parts.ts';
import { Container, OciImage } from './oci-image.ts';
import { EPOCH, taggedCopy } from './tagged-copy.ts';

const run = promisify(execFile);
const LARGE = { maxBuffer: 64_000_000 };
const { version } = JSON.parse(readFileSync(join(CHECKOUT, 'package.json'), 'utf8')) as { version: string };

let folder: string;
let source: string;
let first: string;
let second: string;
let environment: NodeJS.ProcessEnv;

/** Two builds, from the tag to the signatures. */
beforeAll(async () => {
  folder = mkdtempSync(join(tmpdir(), 'tagferry-release-'));
  source = join(folder, 'source');
  mkdirSync(source);
  const tag = taggedCopy(source);
  environment = { ...process.env, GNUPGHOME: join(folder, 'gnupg'), ...(await aptProxy()) };
  mkdirSync(environment.GNUPGHOME!, { mode: 0o700 });
  const born = ['--faked-system-time', String(EPOCH - 86_400), '--batch', '--passphrase', ''];
  await run('gpg', [...born, '--quick-generate-key', 'release@tagferry.invalid', 'ed25519', 'sign', 'never'], {
    env: environment,
  });
  const secret = await run('gpg', ['--batch', '--armor', '--export-secret-keys'], { env: environment });
  writeFileSync(join(folder, 'key.asc'), secret.stdout, { mode: 0o600 });
  const flags = ['--fast', '--images', 'amd64', '--suite', suiteOfThisMachine(), '--mirror', await mirror()];
  const make = async (out: string, ...key: string[]) => {
    await run(join(source, 'scripts/release'), [tag, '--out', out, ...flags, ...key], { env: environment, ...LARGE });
    return out;
  };
  // Once with the caller's keyring, once with a key from a file.
  first = await make(join(folder, 'first'), '--key', 'release@tagferry.invalid');
  second = await make(join(folder, 'second'), '--key-file', join(folder, 'key.asc'));
}, 1_200_000);

afterAll(() => rmSync(folder, { recursive: true, force: true }));

const sha256 = (bytes: Buffer) => createHash('sha256').update(bytes).digest('hex');
const deb = (arch: string) => `tagferry_${version}_${arch}.deb`;

function filesOf(of: string): string[] {
  const entries = readdirSync(of, { recursive: true, withFileTypes: true });
  return entries
    .filter((entry) => entry.isFile())
    .map((entry) => join(entry.parentPath, entry.name).slice(of.length + 1))
    .toSorted();
}

describe('scripts/release', { timeout: 120_000 }, () => {
  it('produces identical bytes in a second build', () => {
    const sums = (of: string) => filesOf(of).map((name) => `${name} ${sha256(readFileSync(join(of, name)))}`);
    expect(filesOf(first).length).toBeGreaterThan(15);
    expect(sums(second)).toEqual(sums(first));
  });

  it('signs the checksums of all output', async () => {
    const keyring = join(first, 'apt/tagferry-archive-keyring.gpg');
    await run('gpgv', ['--keyring', keyring, 'SHA256SUMS.asc', 'SHA256SUMS'], { cwd: first });
    await run('sha256sum', ['--check', '--strict', 'SHA256SUMS'], { cwd: first });
    const summed = readFileSync(join(first, 'SHA256SUMS'), 'utf8')
      .trim()
      .split('\n')
      .map((line) => line.slice(66));
    const made = filesOf(first).filter((name) => !name.startsWith('apt/') && !name.startsWith('SHA256SUMS'));
    expect(summed.toSorted()).toEqual(made);
    // Only the caller has the signing key.
    for (const name of filesOf(first).filter((one) => !/\.(deb|tar)$/.test(one)))
      expect(readFileSync(join(first, name), 'latin1')).not.toContain('PRIVATE KEY');
  });

  it('lists every change in the release notes', () => {
    const notes = readFileSync(join(first, 'NOTES.md'), 'utf8');
    const [release] = readChangelog(source);
    for (const change of release!.changes) expect(notes).toContain(`- ${change}`);
  });

  it('builds nothing if the tag, key, changelog date or release state folder is missing', async () => {
    const refused = async (...args: string[]) => {
      const said = await run(join(source, 'scripts/release'), args, { env: environment }).catch(
        (error: Error & { stderr: string }) => error,
      );
      return 'code' in said ? said.stderr : 'it was made';
    };
    expect(await refused('v99.0.0', '--key', 'release@tagferry.invalid')).toContain('there is no tag v99.0.0');
    expect(await refused(`v${version}`)).toContain('nothing to sign with');
    const notes = join(source, 'scripts/release.d/notes.ts');
    const unready = await run(process.execPath, [notes, CHECKOUT, '98.0.0']).catch(
      (error: Error & { stderr: string }) => error,
    );
    expect(unready.stderr).toContain('CHANGELOG.md says nothing of 98.0.0');
    expect(unready.stderr).toContain('its state folder is not kept');
  });
});

describe('apt repository', { timeout: 120_000 }, () => {
  /** An apt configuration that contains only this repository and trusts only its key. */
  async function apt(repository: string, ...args: string[]): Promise<{ status: number; said: string; root: string }> {
    const root = mkdtempSync(join(folder, 'apt-'));
    for (const part of [
      'state/lists/partial',
      'cache/archives/partial',
      'etc/apt.conf.d',
      'etc/preferences.d',
      'downloads',
    ])
      mkdirSync(join(root, part), { recursive: true });
    const trusted = join(first, 'apt/tagferry-archive-keyring.gpg');
    writeFileSync(join(root, 'etc/sources.list'), `deb [signed-by=${trusted}] file:${repository} stable main\n`);
    writeFileSync(join(root, 'status'), '');
    const own = Object.entries({
      'Dir::State': join(root, 'state'),
      'Dir::State::status': join(root, 'status'),
      'Dir::Cache': join(root, 'cache'),
      'Dir::Etc': join(root, 'etc'),
      'APT::Architecture': 'amd64',
      'APT::Architectures::': 'arm64',
      'APT::Sandbox::User': 'root',
    }).flatMap(([name, value]) => ['-o', `${name}=${value}`]);
    let said = '';
    for (const command of [['update'], args]) {
      const done = await run('apt-get', [...own, ...command], {
        cwd: join(root, 'downloads'),
        env: { ...environment, LC_ALL: 'C.UTF-8' },
      }).catch((error: Error & { code: number; stdout: string; stderr: string }) => error);
      said += `${done.stdout}${done.stderr}`;
      if ('code' in done) return { status: Number(done.code), said, root };
    }
    return { status: 0, said, root };
  }

  it('passes apt verification, and apt downloads both packages', async () => {
    const { status, said, root } = await apt(join(first, 'apt'), 'download', 'tagferry:amd64', 'tagferry:arm64');
    expect(said).not.toMatch(/^[WE]:/m);
    expect(status).toBe(0);
    for (const arch of ['amd64', 'arm64']) {
      const got = readFileSync(join(root, 'downloads', deb(arch)));
      expect(sha256(got)).toBe(sha256(readFileSync(join(first, deb(arch)))));
    }
  });

  it.for([
    ['an index with one changed byte', 'dists/stable/main/binary-amd64/Packages', /Hash Sum mismatch|unexpected size/],
    ['a modified signed list', 'dists/stable/InRelease', /BADSIG|NODATA|not signed|Clearsigned file/],
    ['a modified package', `pool/main/t/tagferry/${deb('amd64')}`, /Hash Sum mismatch|unexpected size/],
  ] as const)('is rejected by apt with %s', async ([, name, words]) => {
    const changed = mkdtempSync(join(folder, 'changed-'));
    cpSync(join(first, 'apt'), changed, { recursive: true });
    const file = join(changed, name);
    if (name.endsWith('Packages')) rmSync(`${file}.gz`);
    if (name.endsWith('InRelease')) rmSync(join(changed, 'dists/stable/Release.gpg'));
    const bytes = readFileSync(file);
    bytes[Math.floor(bytes.length / 3)]! ^= 1;
    writeFileSync(file, bytes);
    const { status, said, root } = await apt(changed, 'download', 'tagferry:amd64');
    expect(said).toMatch(words);
    expect(status).not.toBe(0);
    expect(existsSync(join(root, 'downloads', deb('amd64')))).toBe(false);
  });

  it('is rejected by apt if it is signed with another key', async () => {
    const other = mkdtempSync(join(folder, 'other-'));
    cpSync(join(first, 'apt'), other, { recursive: true });
    const env = { ...environment, GNUPGHOME: mkdtempSync(join(folder, 'gnupg-')) };
    await run(
      'gpg',
      ['--batch', '--passphrase', '', '--quick-generate-key', 'other@tagferry.invalid', 'ed25519', 'sign', 'never'],
      { env },
    );
    rmSync(join(other, 'dists/stable/Release.gpg'));
    const list = join(other, 'dists/stable/InRelease');
    await run('gpg', ['--batch', '--yes', '--output', list, '--clearsign', join(other, 'dists/stable/Release')], {
      env,
    });
    const { status, said } = await apt(other, 'download', 'tagferry:amd64');
    expect(said).toMatch(/NO_PUBKEY|not signed/);
    expect(status).not.toBe(0);
  });

  it('keeps previous releases alongside a new one', async () => {
    const grown = mkdtempSync(join(folder, 'grown-'));
    cpSync(join(first, 'apt'), grown, { recursive: true });
    const built = await run(
      join(CHECKOUT, 'scripts/build-deb'),
      ['amd64', '--fast', '--version', '98.0.0', '--out', folder],
      LARGE,
    );
    copyFileSync(
      built.stdout.trim().split('\n').at(-1)!,
      join(grown, 'pool/main/t/tagferry/tagferry_98.0.0_amd64.deb'),
    );
    await run(join(source, 'scripts/release.d/apt-index'), [grown, String(EPOCH)]);
    const index = readFileSync(join(grown, 'dists/stable/main/binary-amd64/Packages'), 'utf8');
    const listed = [...index.matchAll(/^Package: (.*)\nVersion: (.*)$/gm)].map((match) => `${match[1]} ${match[2]}`);
    const beside = [`tagferry ${version}`, 'tagferry 98.0.0', `tagferry-opcua ${version}`];
    expect(listed.toSorted()).toEqual(beside.toSorted());
  });
});

describe('packages', { timeout: 300_000 }, () => {
  it('have no lintian errors', async () => {
    const asRoot = process.getuid?.() === 0 ? ['--allow-root'] : [];
    const said = await run('lintian', ['--fail-on', 'error', ...asRoot, join(first, deb('amd64'))]).catch(
      (error: { stdout?: string; message: string }) => ({ stdout: error.stdout || error.message }),
    );
    expect(said.stdout.split('\n').filter((line) => /^E:|^Command failed|ENOENT/.test(line))).toEqual([]);
  });

  it('contain only arm64 native modules for arm64', async () => {
    const unpacked = mkdtempSync(join(folder, 'unpacked-'));
    await run('dpkg-deb', ['-x', join(first, deb('arm64')), unpacked]);
    expect(nativeParts(unpacked)).toEqual(PARTS.arm64);
  });
});

describe('bill of materials', { timeout: 120_000 }, () => {
  interface Sbom {
    bomFormat: string;
    specVersion: string;
    serialNumber: string;
    metadata: { component: { 'bom-ref': string } };
    components: {
      type: string;
      'bom-ref': string;
      name: string;
      version: string;
      purl: string;
      licenses?: unknown[];
      hashes?: unknown[];
    }[];
    dependencies: { ref: string; dependsOn: string[] }[];
  }
  const read = (name: string) => JSON.parse(readFileSync(join(first, name), 'utf8')) as Sbom;

  it.for(['amd64', 'arm64'])('lists everything in the %s package, with versions, hashes and licences', async (arch) => {
    const sbom = read(`tagferry_${version}_${arch}.cdx.json`);
    expect(sbom).toMatchObject({ bomFormat: 'CycloneDX', specVersion: '1.5' });
    expect(sbom.serialNumber).toMatch(
      /^urn:uuid:[0-9a-f]{8}-[0-9a-f]{4}-[1-8][0-9a-f]{3}-[89ab][0-9a-f]{3}-[0-9a-f]{12}$/,
    );
    const unpacked = mkdtempSync(join(folder, 'unpacked-'));
    await run('dpkg-deb', ['-x', join(first, deb(arch)), unpacked]);
    const { stdout } = await run(
      'find',
      [join(unpacked, 'usr/lib/tagferry/node_modules'), '-name', 'package.json'],
      LARGE,
    );
    const inside = stdout
      .trim()
      .split('\n')
      .map((file) => JSON.parse(readFileSync(file, 'utf8')) as { name?: string; version?: string });
    const there = inside
      .filter(({ name, version: found }) => name && found)
      .map(({ name, version: found }) => `${name} ${found}`);
    const named = sbom.components.map(({ name, version: found }) => `${name} ${found}`);
    expect(there.filter((one) => !named.includes(one))).toEqual([]);
    const lock = JSON.parse(readFileSync(join(CHECKOUT, 'package-lock.json'), 'utf8')) as {
      packages: Record<string, { version: string }>;
    };
    const runtime = `node-linux-${arch === 'amd64' ? 'x64' : 'arm64'}`;
    expect(named).toContain(`${runtime} ${lock.packages[`node_modules/${runtime}`]!.version}`);
    const refs = [sbom.metadata.component['bom-ref'], ...sbom.components.map((one) => one['bom-ref'])];
    expect(new Set(refs).size).toBe(refs.length);
    for (const { name, purl, licenses, hashes } of sbom.components) {
      expect(purl, name).toMatch(/^pkg:(npm|generic)\/\S+@\S+$/);
      expect(licenses, name).toHaveLength(1);
      if (name !== 'sqlite') expect(hashes, name).toHaveLength(1);
    }
    for (const { ref, dependsOn } of sbom.dependencies)
      for (const one of [ref, ...dependsOn]) expect(refs).toContain(one);
    const reached = new Set<string>();
    const follow = (ref: string) => {
      if (reached.has(ref)) return;
      reached.add(ref);
      for (const next of sbom.dependencies.find((one) => one.ref === ref)?.dependsOn ?? []) follow(next);
    };
    follow(refs[0]!);
    expect(reached.size, 'everything is there because something needs it').toBeGreaterThan(sbom.components.length / 2);
    const licences = readFileSync(join(first, 'LICENCES.txt'), 'utf8');
    for (const { name, version: found } of sbom.components.filter(
      ({ purl }) => purl.startsWith('pkg:npm') && !purl.includes('node-linux'),
    ))
      expect(licences).toContain(`${name} ${found} (`);
  });

  it('lists the Debian packages in the image', () => {
    const { components } = read(`tagferry_${version}_image_amd64.cdx.json`);
    const debian = components.filter(({ purl }) => purl.startsWith('pkg:deb/debian/')).map(({ name }) => name);
    expect(debian).toEqual(expect.arrayContaining(['libc6', 'libstdc++6', 'dash', 'ca-certificates']));
  });
});

describe('container image', { timeout: 300_000 }, () => {
  let image: OciImage;
  let root: string;

  beforeAll(async () => {
    image = new OciImage(join(first, `tagferry_${version}_oci.tar`), folder);
    root = join(folder, 'root');
    await image.unpack(root);
  }, 300_000);

  it('has layers that match their digests, and a configuration without secrets', () => {
    const { config, rootfs, architecture, os, created } = image.config;
    expect({ architecture, os, created }).toEqual({
      architecture: 'amd64',
      os: 'linux',
      created: new Date(EPOCH * 1000).toISOString().replace('.000', ''),
    });
    expect(rootfs).toEqual({ type: 'layers', diff_ids: image.layers.map(({ diffId }) => diffId) });
    expect(config.User).toBe('8470:8470');
    expect(config.Entrypoint.concat(config.Cmd)).toEqual(['/usr/bin/tagferry', 'run']);
    expect(Object.keys(config.Volumes)).toEqual(['/var/lib/tagferry']);
    expect(Object.keys(config.ExposedPorts)).toEqual(['8470/tcp', '8471/tcp', '8472/tcp']);
    expect(config.Env.filter((line) => /SECRET|PASSWORD|TOKEN|KEY|PROXY/i.test(line))).toEqual([]);
    expect(existsSync(join(root, config.Entrypoint[0]!))).toBe(true);
  });

  it('has no setuid programs, files from this machine, or hidden files in its layers', async () => {
    const [debian, agent] = [await image.list(0), await image.list(1)];
    expect(debian.length).toBeGreaterThan(1_000);
    for (const { mode, path } of [...debian, ...agent]) {
      expect(mode, path).not.toMatch(/^-..[sS]|^-.....[sS]/);
      expect(mode, path).not.toMatch(/^[bc]/);
      expect(path).not.toMatch(/\/\.wh\./);
    }
    const plain = (one: { mode: string }) => !one.mode.startsWith('d');
    const below = new Set(debian.filter(plain).map(({ path }) => path));
    expect(agent.filter(plain).filter(({ path }) => below.has(path))).toEqual([]);
    const own = agent.filter(({ owner }) => owner !== '0/0');
    expect(own).toEqual([
      { mode: 'drwxr-x---', owner: '8470/8470', path: './run/tagferry/' },
      { mode: 'drwx------', owner: '8470/8470', path: './var/lib/tagferry/' },
    ]);
    const there = new Set([...debian, ...agent].map(({ path }) => path.replace(/^\./, '')));
    for (const name of [
      '/etc/resolv.conf',
      '/etc/hostname',
      '/etc/machine-id',
      '/etc/apt/sources.list',
      '/root/.bash_history',
      '/debootstrap/',
    ])
      expect(there).not.toContain(name);
    expect(readFileSync(join(root, 'etc/passwd'), 'utf8')).toMatch(/^tagferry:x:8470:8470:/m);
    const { stdout } = await run('grep', [
      '-rlE',
      'BEGIN [A-Z ]*PRIVATE KEY',
      join(root, 'etc'),
      join(root, 'var'),
      join(root, 'root'),
      join(root, 'usr/share'),
    ]).catch(() => ({ stdout: '' }));
    expect(stdout).toBe('');
  });

  it('can be read and started by an independent container tool', async () => {
    const storage = [
      '--root',
      join(folder, 'storage'),
      '--runroot',
      join(folder, 'runroot'),
      '--storage-driver',
      'vfs',
    ];
    const env = { ...environment, BUILDAH_ISOLATION: 'chroot', BUILDAH_HISTORY: 'false' };
    const buildah = async (...args: string[]) =>
      (await run('buildah', [...storage, ...args], { env, ...LARGE })).stdout.trim();
    const container = await buildah('from', `oci-archive:${join(first, `tagferry_${version}_oci.tar`)}`);
    try {
      expect(await buildah('run', container, '--', 'id', '-u')).toBe('8470');
      expect(await buildah('run', container, '--', '/usr/bin/tagferry', '--version')).toBe(version);
    } finally {
      await buildah('rm', container);
    }
  });

  it('delivers all values despite a kill and an outage, with a read-only root and all state in the volume', async () => {
    const sandbox = new Sandbox({ limits: { perUser: 0, perApiKey: 0, perAddress: 0 } });
    await sandbox.start();
    const files = mkdtempSync(join(folder, 'files-'));
    writeFileSync(join(files, 'tags.yaml'), 'tags: { FT-101: { asset: 881, values: { flow: { unit: 12 } } } }\n');
    writeFileSync(join(files, 'agent.env'), `PLATFORM_URL=${sandbox.url}\nCLIENT_SECRET_FILE=client_secret\n`);
    writeFileSync(join(files, 'client_secret'), `${SANDBOX_CREDENTIALS.clientSecret}\n`);
    chmodSync(files, 0o755);
    const volume = mkdtempSync(join(folder, 'volume-'));
    chownSync(volume, 8470, 8470);
    const [ingest, ops] = [await freePort(), await freePort()];
    const container = new Container(root, image.config, {
      volume,
      files,
      environment: {
        CLIENT_ID: SANDBOX_CREDENTIALS.clientId,
        TECHNICAL_USERNAME: SANDBOX_CREDENTIALS.technicalUsername,
        TECHNICAL_PASSWORD: SANDBOX_CREDENTIALS.technicalPassword,
        INGEST_LISTEN: `127.0.0.1:${ingest}`,
        OPS_LISTEN: `127.0.0.1:${ops}`,
        WEBHOOK_LISTEN: '',
        POST_INTERVAL: '200ms',
      },
    });
    const sent: { timestampMs: number; value: number }[] = [];
    const push = async (count: number) => {
      const values = Array.from({ length: count }, () => {
        const one = { timestampMs: EPOCH * 1000 + sent.length, value: sent.length };
        sent.push(one);
        return { tag: 'FT-101', key: 'flow', value: one.value, timestamp: one.timestampMs };
      });
      const answer = await fetch(`http://127.0.0.1:${ingest}/v1/values`, {
        method: 'POST',
        headers: { 'Content-Type': 'application/json' },
        body: JSON.stringify({ values }),
      });
      expect(answer.status, await answer.text()).toBe(204);
    };
    const ready = async () => {
      if (container.hasEnded) throw new Error(container.output);
      return (await fetch(`http://127.0.0.1:${ops}/readyz`).catch(() => undefined))?.status === 200;
    };
    try {
      container.start();
      await until('the container is ready', ready);
      await push(200);
      await until('the values are on the platform', () => sandbox.values.counts(881, 'flow').stored === 200);
      // The probes of docs/guide/container.md.
      expect(await container.exec('/usr/bin/tagferry', 'status', '--json')).toBe(0);
      await sandbox.goOffline('refuse');
      await push(100);
      expect(await container.end('SIGKILL')).toBe('SIGKILL');
      container.start();
      await until(
        'the container is ready again',
        async () => (await fetch(`http://127.0.0.1:${ops}/metrics`).catch(() => undefined))?.ok,
      );
      await push(50);
      await sandbox.goOnline();
      await until('all are on the platform', () => sandbox.values.counts(881, 'flow').stored === 350, 90_000);
      expect(sandbox.values.compare(881, 'flow', sent)).toEqual({ missing: [], invented: [], different: [] });
      expect(await container.end('SIGTERM')).toBe(0);
      expect(sandbox.tokens.counts().alive).toBe(0);
      expect(readdirSync(volume)).toEqual(expect.arrayContaining(['buffer.db', 'inbox.db']));
    } finally {
      await container.end('SIGKILL');
      await sandbox.stop();
    }
  });
});
