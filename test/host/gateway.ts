import { type ChildProcessByStdio, execFile } from 'node:child_process';
import { readdirSync } from 'node:fs';
import { join } from 'node:path';
import { createInterface } from 'node:readline';
import type { Readable, Writable } from 'node:stream';
import { promisify } from 'node:util';
import { debianTree } from './debian-tree.ts';
import { Machine, until } from './machine.ts';
import { A_DAY_MS, CHECKOUT, madeOnce, sourceKey } from './made-once.ts';

const run = promisify(execFile);
const INSIDE = join(import.meta.dirname, 'inside');
const SANDBOX = 'http://127.0.0.1:8480';
const ACKNOWLEDGED = '/root/acknowledged';

/** Package of this checkout, shared by test files. Returns its file, which is kept. */
export async function packageOf({ arch = ownArchitecture(), version = '' } = {}): Promise<string> {
  const source = await sourceKey();
  const options = [arch, '--faster', ...(version === '' ? [] : ['--version', version])];
  const made = await madeOnce(
    'packages',
    [source, arch, version].join('_'),
    async (folder) => {
      await buildDeb(folder, ...options);
    },
    A_DAY_MS,
  );
  return join(made, readdirSync(made)[0]!);
}

const ownArchitecture = () => (process.arch === 'arm64' ? 'arm64' : 'amd64');

/** Builds a package. Returns its file. */
export async function buildDeb(out: string, ...options: string[]): Promise<string> {
  const { stdout } = await run(join(CHECKOUT, 'scripts/build-deb'), ['--out', out, ...options]);
  return stdout.trim().split('\n').at(-1)!;
}

export interface Answer {
  status: number;
  text: string;
}

/**
 * Program inside the machine that sends requests: one JSON line per request and one per response, in the same order.
 */
class Asker {
  readonly #child: ChildProcessByStdio<Writable, Readable, null>;
  readonly #waiting: { resolve: (answer: Answer) => void; reject: (error: Error) => void; what: string }[] = [];

  constructor(child: ChildProcessByStdio<Writable, Readable, null>) {
    this.#child = child;
    createInterface({ input: child.stdout }).on('line', (line) => {
      const { resolve, reject, what } = this.#waiting.shift()!;
      const answer = JSON.parse(line) as Answer | { error: string };
      if ('error' in answer) reject(new Error(`${what}: ${answer.error}`));
      else resolve(answer);
    });
    // Also if the program could not start, or ended with the machine.
    child.stdin.on('error', () => {});
    child.once('close', () => {
      for (const { reject, what } of this.#waiting.splice(0)) reject(new Error(`${what}: what asks has ended`));
    });
  }

  ask(request: { method: string; url: string; body?: unknown }): Promise<Answer> {
    const what = `${request.method} ${request.url}`;
    return new Promise((resolve, reject) => {
      if (this.#child.exitCode !== null) return reject(new Error(`${what}: what asks has ended`));
      this.#waiting.push({ resolve, reject, what });
      this.#child.stdin.write(`${JSON.stringify(request)}\n`);
    });
  }
}

/** Gateway with the tagferry package and the sandbox; all its peers are inside the machine. */
export class Gateway {
  readonly machine: Machine;

  private constructor(machine: Machine) {
    this.machine = machine;
  }

  /** `tree`: Debian tree other than the shared one. */
  static async boot(tree?: string): Promise<Gateway> {
    return new Gateway(await Machine.boot(tree ?? (await debianTree())));
  }

  async stop(): Promise<void> {
    await this.machine.stop();
  }

  /** Installs with dpkg, or with apt including dependencies. Returns the output. */
  async install(deb: string, by: 'dpkg' | 'apt' = 'dpkg'): Promise<string> {
    this.machine.put(deb, '/root/tagferry.deb');
    const command =
      by === 'apt' ? 'apt-get install --yes --no-install-recommends /root/tagferry.deb' : 'dpkg -i /root/tagferry.deb';
    // Files written there are stored in memory.
    return this.machine.sh(`${command} 2>&1; rm /root/tagferry.deb`, { timeoutMs: 300_000 });
  }

  /** The sandbox and test programs run from a copy (`from`: its source) that upgrades and removals do not change. */
  async startSandbox(from = '/usr/lib/tagferry'): Promise<void> {
    for (const program of ['pusher.mjs', 'fetch.mjs']) this.machine.put(join(INSIDE, program), `/opt/test/${program}`);
    const flags = '--listen 127.0.0.1:8480 --admin-port 8481 --per-minute 0 --quiet';
    await this.machine.sh(`
      cp -r ${from} /opt/platform
      systemd-run --quiet --unit=platform /opt/platform/bin/node /opt/platform/dist/main.js sandbox ${flags}`);
    await until('the sandbox responds', async () => {
      return (await this.fetch('GET', `${SANDBOX}/sandbox/status`).catch(() => undefined)) !== undefined;
    });
  }

  /** Writes agent.env and both secrets for the sandbox, as `tagferry setup` does. */
  async configure(more = ''): Promise<void> {
    this.machine.write('/etc/tagferry/credentials/client_secret', 'sandbox-secret\n', 0o600);
    this.machine.write('/etc/tagferry/credentials/technical_password', 'gateway-password\n', 0o600);
    const lines = [
      `PLATFORM_URL=${SANDBOX}`,
      'CLIENT_ID=sandbox-client',
      'TECHNICAL_USERNAME=gateway@sandbox.example',
      'POST_INTERVAL=1s',
      'COMMIT_INTERVAL=100ms',
    ];
    // Overwritten, not replaced, to keep owner and mode of the package.
    this.machine.write('/etc/tagferry/agent.env', `${lines.join('\n')}\n${more}`);
  }

  /** Program that sends sequential requests inside. It is started once, because a start costs more than a request. */
  #asker: Asker | undefined;

  async fetch(method: string, url: string, body?: unknown): Promise<Answer> {
    this.#asker ??= new Asker(this.machine.start(['/opt/platform/bin/node', '/opt/test/fetch.mjs']));
    return this.#asker.ask({ method, url, body });
  }

  /** Sandbox endpoints (`/sandbox/…`), on the address that stays reachable when the platform is offline. */
  async sandbox<T>(method: string, path: string, body?: unknown): Promise<T> {
    const { status, text } = await this.fetch(method, `http://127.0.0.1:8481/sandbox/${path}`, body);
    if (status >= 300) throw new Error(`sandbox ${path}: ${status} ${text}`);
    return (text === '' ? undefined : JSON.parse(text)) as T;
  }

  async push(values: readonly object[]): Promise<Answer> {
    return this.fetch('POST', 'http://127.0.0.1:8470/v1/values', { values });
  }

  async startPusher(): Promise<void> {
    await this.machine.sh(
      `systemd-run --quiet --unit=pusher /opt/platform/bin/node /opt/test/pusher.mjs ${ACKNOWLEDGED} FT-101 flow 20`,
    );
  }

  async stopPusher(): Promise<void> {
    await this.machine.sh('systemctl stop pusher');
  }

  /** Timestamps of the values acknowledged to the pusher so far. */
  acknowledged(): number[] {
    if (!this.machine.exists(ACKNOWLEDGED)) return [];
    return this.machine.read(ACKNOWLEDGED).split('\n').filter(Boolean).map(Number);
  }

  /** Waits until the given number of additional values are acknowledged. */
  async pushed(more: number, withinMs?: number): Promise<void> {
    const before = this.acknowledged().length;
    await until(`${more} more values are acknowledged`, () => this.acknowledged().length >= before + more, withinMs);
  }

  /** Acknowledged values that the sandbox does not have; waits for their arrival for a limited time. */
  async missing(withinMs = 90_000): Promise<number[]> {
    let missing: number[] = [];
    try {
      await until(
        'all values arrive',
        async () => {
          missing = await this.missingNow();
          return missing.length === 0;
        },
        withinMs,
      );
    } catch {
      // The missing values are more informative than a timeout.
    }
    return missing;
  }

  async missingNow(): Promise<number[]> {
    const sent = this.acknowledged().map((timestampMs) => ({ timestampMs }));
    const asked = { asset: 881, key: 'flow', sent };
    return (await this.sandbox<{ missing: number[] }>('POST', 'values/compare', asked)).missing;
  }

  /** Pushes a value below and one above the test threshold, at which the platform sends an event. */
  async crossThreshold(): Promise<void> {
    await this.push([{ tag: 'FT-101', key: 'flow', value: 10 }]);
    await this.push([{ tag: 'FT-101', key: 'flow', value: 99 }]);
  }

  async mainPid(): Promise<number> {
    return Number(await this.machine.property('tagferry', 'MainPID'));
  }

  async restarts(): Promise<number> {
    return Number(await this.machine.property('tagferry', 'NRestarts'));
  }

  /** Waits until the service is active with another process. */
  async restarted(oldPid: number, withinMs?: number): Promise<void> {
    const isBack = async () => {
      const pid = await this.mainPid();
      // Immediately after a kill, the service is still active, and then without a process.
      return pid !== 0 && pid !== oldPid && (await this.machine.property('tagferry', 'ActiveState')) === 'active';
    };
    await until('systemd has restarted the service', isBack, withinMs);
  }

  dropIn(name: string, text: string): Promise<string> {
    this.machine.write(`/etc/systemd/system/tagferry.service.d/${name}.conf`, text);
    return this.machine.sh('systemctl daemon-reload');
  }
  removeDropIn(name: string): Promise<string> {
    return this.machine.sh(`
      rm /etc/systemd/system/tagferry.service.d/${name}.conf
      systemctl daemon-reload
      systemctl restart tagferry`);
  }
}
