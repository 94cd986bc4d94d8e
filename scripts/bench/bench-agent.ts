/** Builds the agent of this checkout and of another commit, and runs each as its package does. */
import { type ChildProcess, execFileSync, spawn } from 'node:child_process';
import { mkdirSync, readFileSync, rmSync, symlinkSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { setTimeout as delay } from 'node:timers/promises';
import { Client } from 'undici';

const root = join(import.meta.dirname, '../..');
/** Folder for builds, unpacked peers and the files of a run. On disk, unlike /tmp on some machines. */
export const CACHE = join(root, '.cache/bench');

/** Maximum time that a benchmark waits for one condition. */
const PATIENCE_MS = 120_000;

const running = new Set<ChildProcess>();
process.once('exit', () => {
  for (const child of running) child.kill('SIGKILL');
});
for (const signal of ['SIGINT', 'SIGTERM', 'SIGHUP'] as const) process.once(signal, () => process.exit(1));

/** A program in the foreground. It is killed when the benchmark exits. */
export class Program {
  readonly child: ChildProcess;
  /** Beginning of the output. */
  output = '';

  constructor(command: string, args: readonly string[], environment: NodeJS.ProcessEnv) {
    const inherited = Object.entries(process.env).filter(([name]) => !name.startsWith('NODE_'));
    const env = { ...Object.fromEntries(inherited), ...environment };
    this.child = spawn(command, args, { stdio: ['ignore', 'pipe', 'pipe'], env });
    for (const stream of [this.child.stdout!, this.child.stderr!]) {
      stream.on('data', (chunk) => {
        if (this.output.length < 200_000) this.output += chunk;
      });
    }
    running.add(this.child);
    this.child.once('exit', () => running.delete(this.child));
  }

  get pid(): number {
    return this.child.pid!;
  }

  /** Waits for a condition. Throws on timeout, or if the program has exited. */
  async until(what: string, condition: () => boolean | Promise<boolean>, everyMs = 20): Promise<void> {
    const endMs = performance.now() + PATIENCE_MS;
    while (!(await condition())) {
      const { exitCode, signalCode, spawnfile } = this.child;
      if (exitCode !== null || signalCode !== null) {
        throw new Error(`${spawnfile} exited with ${exitCode ?? signalCode}\n${this.output.slice(-3000)}`);
      }
      if (performance.now() > endMs) throw new Error(`${spawnfile}: timeout waiting for: ${what}`);
      await delay(everyMs);
    }
  }

  async end(): Promise<void> {
    if (this.child.exitCode !== null || this.child.signalCode !== null) return;
    const exited = new Promise((resolve) => this.child.once('exit', resolve));
    this.child.kill('SIGKILL');
    await exited;
  }
}

export interface Build {
  name: string;
  /** Folder of `dist/`. */
  folder: string;
  /** Runtime, options and environment variables of the package's command. */
  node: string;
  flags: string[];
  variables: Record<string, string>;
}

function built(name: string, tree: string, folder: string): Build {
  const node = join(tree, 'node_modules/.bin/node');
  execFileSync(node, [join(tree, 'scripts/build.ts'), join(folder, 'dist')], {
    stdio: ['ignore', 'ignore', 'inherit'],
  });
  const wrapper = readFileSync(join(tree, 'scripts/deb/wrapper'), 'utf8');
  const flags = /bin\/node ((?:--\S+ )+)\S*main\.js/.exec(wrapper)?.[1]?.trim().split(' ');
  if (!flags) throw new Error(`cannot read the options of the runtime from ${tree}/scripts/deb/wrapper`);
  const variables = [...wrapper.matchAll(/export (\w+)=(\S+)/g)].map(([, key, value]) => [key!, value!] as const);
  return { name, folder, node, flags, variables: Object.fromEntries(variables) };
}

/** Builds this checkout beside its `dist/`, which other programs may use. */
function buildCheckout(): Build {
  const folder = join(CACHE, 'tagferry');
  rmSync(folder, { recursive: true, force: true });
  mkdirSync(folder, { recursive: true });
  // Files that the agent reads. It finds its dependencies in this checkout.
  for (const name of ['package.json', 'config']) symlinkSync(join(root, name), join(folder, name));
  return built('tagferry', root, folder);
}

/** Builds a commit in a worktree, which is removed when the benchmark exits. */
function buildCommit(commit: string): Build {
  const git = (...args: string[]) => execFileSync('git', ['-C', root, ...args], { encoding: 'utf8' }).trim();
  const id = git('rev-parse', '--verify', `${commit}^{commit}`);
  const tree = join(CACHE, `base-${process.pid}`);
  git('worktree', 'add', '--detach', '--quiet', tree, id);
  process.once('exit', () => git('worktree', 'remove', '--force', tree));
  const lock = (of: string) => readFileSync(join(of, 'package-lock.json'), 'utf8');
  if (lock(tree) === lock(root)) symlinkSync(join(root, 'node_modules'), join(tree, 'node_modules'));
  else
    execFileSync('npm', ['ci', '--no-audit', '--no-fund', '--loglevel=error'], { cwd: tree, stdio: ['ignore', 2, 2] });
  return built('base', tree, tree);
}

/** Builds the agent of this checkout and, if `base` is set, that of a commit. */
export function buildAgents(base?: string): Build[] {
  return [buildCheckout(), ...(base === undefined ? [] : [buildCommit(base)])];
}

/** A running agent with its own configuration and state. */
export class BenchAgent extends Program {
  readonly state: string;
  readonly #ops: string;

  private constructor(build: Build, folder: string) {
    const args = [...build.flags, join(build.folder, 'dist/main.js'), 'run', '--config', join(folder, 'config')];
    super(build.node, args, build.variables);
    this.state = join(folder, 'state');
    this.#ops = join(folder, 'ops.sock');
  }

  /** Starts an agent and waits until it is ready. `settings` are added to agent.env. */
  static async start(build: Build, folder: string, platformPort: number, settings: string[], tags = 'tags: {}\n') {
    const config = join(folder, 'config');
    mkdirSync(config, { recursive: true });
    const env = [
      `PLATFORM_URL=http://127.0.0.1:${platformPort}`,
      ...['CLIENT_ID', 'CLIENT_SECRET', 'TECHNICAL_USERNAME', 'TECHNICAL_PASSWORD'].map((key) => `${key}=bench`),
      'INGEST_LISTEN=127.0.0.1:0',
      `OPS_LISTEN=unix:${join(folder, 'ops.sock')}`,
      'WEBHOOK_LISTEN=',
      'LOG_FORMAT=json',
      `STATE_DIR=${join(folder, 'state')}`,
      ...settings,
    ];
    writeFileSync(join(config, 'agent.env'), `${env.join('\n')}\n`, { mode: 0o600 });
    writeFileSync(join(config, 'tags.yaml'), tags);
    const agent = new BenchAgent(build, folder);
    await agent.until('the agent is ready', () => agent.output.includes('"event":"agent.ready"'));
    return agent;
  }

  /** URL for pushed values. */
  get url(): string {
    return `http://127.0.0.1:${/"event":"ingest.listening"[^\n]*"port":(\d+)/.exec(this.output)![1]}`;
  }

  /** Returns the sum of a metric over its labels. */
  async metric(name: string): Promise<number> {
    const client = new Client('http://localhost', { socketPath: this.#ops });
    const { body } = await client.request({ path: '/metrics', method: 'GET' });
    const lines = (await body.text()).split('\n').filter((line) => line.startsWith(name));
    await client.close();
    return lines.reduce((sum, line) => sum + Number(line.slice(line.lastIndexOf(' ') + 1)), 0);
  }
}
