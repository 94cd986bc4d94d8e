import { execFileSync } from 'node:child_process';
import { createHash } from 'node:crypto';
import { chmodSync, cpSync, existsSync, mkdirSync, mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { dirname, join, normalize, relative, sep } from 'node:path';

/**
 * `stage.ts ROOT ARCH VERSION FOLDER` copies the program into a folder:
 *
 *   bin/node        the runtime at the version of package-lock.json
 *   dist/           the built agent
 *   node_modules/   locked production dependencies without files for other platforms or compilers
 */
const [root, arch, version, folder] = process.argv.slice(2) as [string, 'amd64' | 'arm64', string, string];

interface Locked {
  version?: string;
  integrity?: string;
  dev?: boolean;
  devOptional?: boolean;
  optional?: boolean;
  license?: string;
}

const lock = JSON.parse(readFileSync(join(root, 'package-lock.json'), 'utf8')) as { packages: Record<string, Locked> };
/** Dependencies that only compilers require: C++ headers, types. */
const BUILD_ONLY = /(^|\/)node_modules\/(node-addon-api|@types\/[^/]+|undici-types)$/;
/** Node's name of the architecture. */
const cpu = arch === 'amd64' ? 'x64' : 'arm64';
const serialBinding = `linux-${cpu}/@serialport+bindings-cpp.${cpu === 'arm64' ? 'armv8.' : ''}glibc.node`;

stageAgent();
stageDependencies();
stageRuntime();

function stageAgent(): void {
  execFileSync(process.execPath, [join(root, 'scripts/build.ts'), join(folder, 'dist')], { stdio: 'inherit' });
  // The wrapper starts it with the packaged runtime, never with a `node` from PATH.
  const main = join(folder, 'dist/main.js');
  writeFileSync(main, readFileSync(main, 'utf8').replace(/^#!.*\n/, ''));
  const manifest = JSON.parse(readFileSync(join(root, 'package.json'), 'utf8')) as Record<string, unknown>;
  const kept = { name: manifest.name, version, type: manifest.type, license: manifest.license };
  writeFileSync(join(folder, 'package.json'), `${JSON.stringify(kept, null, 2)}\n`);
}

/** Copies from the installed `node_modules`, so that the build requires no network. Optional packages are left out. */
function stageDependencies(): void {
  for (const [path, { dev, devOptional, optional, version: locked }] of Object.entries(lock.packages)) {
    if (path === '' || dev || devOptional || optional || BUILD_ONLY.test(path)) continue;
    const found = JSON.parse(readFileSync(join(root, path, 'package.json'), 'utf8')) as { version: string };
    if (found.version !== locked) {
      throw new Error(`${path} is ${found.version}, package-lock.json requires ${locked}: run scripts/setup`);
    }
    const from = join(root, path);
    const commands = commandsOf(from);
    cpSync(from, join(folder, path), {
      recursive: true,
      // Nested packages have their own entries in the lock file.
      filter: (source) => {
        const file = relative(from, source);
        return !file.split(sep).includes('node_modules') && !commands.has(file) && isNeeded(path, file);
      },
    });
  }
}

/** Returns the command files of a package, which are not used and require an interpreter. */
function commandsOf(folder: string): Set<string> {
  const { bin, main } = JSON.parse(readFileSync(join(folder, 'package.json'), 'utf8')) as {
    bin?: string | Record<string, string>;
    main?: string;
  };
  const files = typeof bin === 'string' ? [bin] : Object.values(bin ?? {});
  return new Set(files.map((file) => normalize(file)).filter((file) => file !== normalize(main ?? 'index.js')));
}

function isNeeded(packagePath: string, file: string): boolean {
  if (packagePath === 'node_modules/better-sqlite3') {
    if (/^(deps|src|binding\.gyp)(\/|$)/.test(file)) return false;
    if (/^prebuilds\/./.test(file)) return file === `prebuilds/linux-${cpu}.node`;
  }
  // The Linux binaries require glibc 2.28 (Debian 10), older than the other parts require.
  if (packagePath === 'node_modules/@serialport/bindings-cpp') {
    if (/^(src|binding\.gyp)(\/|$)/.test(file)) return false;
    if (/^prebuilds\/./.test(file)) return `prebuilds/${serialBinding}`.startsWith(file);
  }
  if (/(^|\/)(\.[^/]+|__tests__|tests?|examples?|benchmarks?|docs?)$/.test(file) && !/^(dist|lib|build)\//.test(file)) {
    return false;
  }
  return (
    !/\.(map|md|markdown|html|flow|tsbuildinfo|[cm]?ts|yml|lock|sh)$|\.min\.js$/i.test(file) || /licen[cs]e/i.test(file)
  );
}

function stageRuntime(): void {
  const name = `node-linux-${cpu}`;
  const locked = lock.packages[`node_modules/${name}`];
  if (!locked?.version) throw new Error(`package-lock.json does not contain ${name}`);
  const installed = join(root, 'node_modules', name);
  const target = join(folder, 'bin/node');
  mkdirSync(dirname(target), { recursive: true });
  const from = existsSync(installed) ? installed : fetched(name, locked as Required<Locked>);
  const { version: found } = JSON.parse(readFileSync(join(from, 'package.json'), 'utf8')) as { version: string };
  if (found !== locked.version) throw new Error(`${name} is ${found}, package-lock.json says ${locked.version}`);
  cpSync(join(from, 'bin/node'), target);
  cpSync(join(from, 'LICENSE'), join(folder, 'bin/LICENSE-node'));
  chmodSync(target, 0o755);
}

/** Downloads the runtime of the other architecture once and verifies the checksum of the lock file. */
function fetched(name: string, locked: Required<Locked>): string {
  const cache = join(root, '.cache/deb', `${name}-${locked.version}`);
  if (existsSync(join(cache, 'package.json'))) return cache;
  mkdirSync(dirname(cache), { recursive: true });
  const download = mkdtempSync(`${cache}.`);
  try {
    execFileSync('npm', ['pack', `${name}@${locked.version}`, '--pack-destination', download, '--silent'], {
      cwd: root,
      stdio: ['ignore', 'ignore', 'inherit'],
    });
    const archive = join(download, `${name}-${locked.version}.tgz`);
    const sum = `sha512-${createHash('sha512').update(readFileSync(archive)).digest('base64')}`;
    if (sum !== locked.integrity)
      throw new Error(`${name}: the checksum of the archive differs from package-lock.json`);
    mkdirSync(join(download, 'unpacked'));
    const members = ['package/package.json', 'package/LICENSE', 'package/bin/node'];
    execFileSync('tar', ['-xzf', archive, '-C', join(download, 'unpacked'), '--strip-components=1', ...members]);
    cpSync(join(download, 'unpacked'), cache, { recursive: true });
  } finally {
    rmSync(download, { recursive: true, force: true });
  }
  return cache;
}
