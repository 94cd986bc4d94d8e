import { createHash } from 'node:crypto';
import { readdirSync, readFileSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { bundledPackages, packagesOfReader, resolved } from './bundled.ts';

/**
 * `sbom.ts ROOT ARCH VERSION TREE FILE [PACKAGES]` describes an unpacked .deb in CycloneDX 1.5. ARCH `all` is
 * tagferry-opcua, which runs in the agent's runtime. PACKAGES is a folder of control files of Debian packages in the
 * image. A package that is missing in the lock file is an error.
 */
const [root, arch, version, tree, file, debian] = process.argv.slice(2) as [
  string,
  string,
  string,
  string,
  string,
  string?,
];

interface Component {
  type: string;
  'bom-ref': string;
  name: string;
  version: string;
  purl?: string;
  description?: string;
  hashes?: { alg: string; content: string }[];
  licenses?: ({ license: { id?: string; name?: string } } | { expression: string })[];
}
interface Locked {
  version: string;
  integrity?: string;
  dependencies?: Record<string, string>;
  devDependencies?: Record<string, string>;
}

const lock = JSON.parse(readFileSync(join(root, 'package-lock.json'), 'utf8')) as { packages: Record<string, Locked> };
const epoch = Number(process.env.SOURCE_DATE_EPOCH);
/** The OPC UA program. */
const isReader = arch === 'all';
const bundled = isReader ? packagesOfReader(root, tree) : bundledPackages(tree);
const paths = new Set(bundled.map(({ path }) => path));
const packageName = isReader ? 'tagferry-opcua' : 'tagferry';
const agent = `pkg:deb/${packageName}@${version}?arch=${arch}`;
const runtimeName = `node-linux-${arch === 'amd64' ? 'x64' : 'arm64'}`;
const runtime = component(`node_modules/${runtimeName}`, runtimeName, 'MIT', 'platform');
const sqliteVersion = /#define SQLITE_VERSION +"([0-9.]+)"/.exec(
  readFileSync(join(root, 'node_modules/better-sqlite3/deps/sqlite3/sqlite3.h'), 'utf8'),
)![1]!;
const sqlite: Component = {
  type: 'library',
  'bom-ref': `pkg:generic/sqlite@${sqliteVersion}`,
  name: 'sqlite',
  version: sqliteVersion,
  purl: `pkg:generic/sqlite@${sqliteVersion}`,
  licenses: [{ license: { id: 'blessing' } }],
};
const components = [
  ...(isReader ? [] : [runtime, sqlite]),
  ...bundled.map(({ path, name, licence }) => component(path, name, licence)),
  ...(debian === undefined ? [] : debianComponents(debian)),
];
const { dependencies: own, devDependencies: forDevelopers } = lock.packages['']!;
// The agent does not depend on packages that only the bundle contains.
const direct = Object.keys({ ...own, ...(isReader ? forDevelopers : {}) });
const refs = new Map(bundled.map(({ path, name, version: found }) => [path, npmRef(path, name, found)]));
const below = (from: string, names: readonly string[]) =>
  names.flatMap((name) => refs.get(resolved(from, name, paths) ?? '') ?? []).toSorted();
const dependencies = [
  { ref: agent, dependsOn: [...(isReader ? [] : [runtime['bom-ref']]), ...below('.', direct)] },
  ...bundled.map(({ path, name }) => ({
    ref: refs.get(path)!,
    dependsOn: [
      ...below(path, Object.keys(lock.packages[path]!.dependencies ?? {})),
      ...(name === 'better-sqlite3' ? [sqlite['bom-ref']] : []),
    ],
  })),
];
const document = {
  bomFormat: 'CycloneDX',
  specVersion: '1.5',
  version: 1,
  metadata: {
    timestamp: new Date(epoch * 1000).toISOString().replace('.000', ''),
    component: { type: 'application', 'bom-ref': agent, name: packageName, version, purl: agent },
  },
  components,
  dependencies,
};
// The serial number is derived from the content, so that the same release has the same number.
const digest = createHash('sha256').update(JSON.stringify(document)).digest('hex');
const uuid = `${digest.slice(0, 8)}-${digest.slice(8, 12)}-8${digest.slice(13, 16)}-a${digest.slice(17, 20)}-${digest.slice(20, 32)}`;
const { bomFormat, specVersion, ...rest } = document;
writeFileSync(
  file,
  `${JSON.stringify({ bomFormat, specVersion, serialNumber: `urn:uuid:${uuid}`, ...rest }, null, 2)}\n`,
);

/** Copies of the same version at two paths are two components. */
function npmRef(path: string, name: string, found: string): string {
  const place = path === `node_modules/${name}` ? '' : `#${path}`;
  return `pkg:npm/${name.replace('@', '%40')}@${found}${place}`;
}

function component(path: string, name: string, licence: string | undefined, type = 'library'): Component {
  const locked = lock.packages[path];
  if (locked === undefined) throw new Error(`${path} is inside, and package-lock.json does not name it`);
  const [algorithm, hash] = (locked.integrity ?? '').split('-') as [string, string?];
  return {
    type,
    'bom-ref': npmRef(path, name, locked.version),
    name,
    version: locked.version,
    purl: npmRef(`node_modules/${name}`, name, locked.version),
    ...(hash === undefined || algorithm !== 'sha512'
      ? {}
      : { hashes: [{ alg: 'SHA-512', content: Buffer.from(hash, 'base64').toString('hex') }] }),
    ...(licence === undefined ? {} : { licenses: [licenceOf(licence)] }),
  };
}

function licenceOf(words: string): { license: { id?: string; name?: string } } | { expression: string } {
  if (/ (OR|AND|WITH) /.test(words)) return { expression: words };
  return { license: /^[A-Za-z0-9.+-]+$/.test(words) ? { id: words } : { name: words } };
}

function debianComponents(folder: string): Component[] {
  return readdirSync(folder)
    .toSorted()
    .map((name) => {
      const control = readFileSync(join(folder, name), 'utf8');
      const field = (wanted: string) => new RegExp(`^${wanted}: (.*)$`, 'm').exec(control)?.[1] ?? '';
      const found = field('Version');
      const purl = `pkg:deb/debian/${field('Package')}@${encodeURIComponent(found)}?arch=${field('Architecture')}`;
      return { type: 'library', 'bom-ref': purl, name: field('Package'), version: found, purl };
    });
}
