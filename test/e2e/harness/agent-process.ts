import { type ChildProcess, spawn } from 'node:child_process';
import { mkdirSync, mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { request } from 'node:http';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { SANDBOX_CREDENTIALS } from '../../../src/sandbox/sandbox.ts';
import { MAIN } from '../../built-agent.ts';
import { COMPILED_CODE } from '../../host/made-once.ts';
import { PATIENCE_MS } from '../../setup.ts';

export interface AgentFiles {
  env?: Record<string, string>;
  tags?: string;
  reactions?: string;
}

/** Runs the agent as a separate process with its own configuration and state folders. */
export class AgentProcess {
  readonly folder: string;
  readonly config: string;
  readonly state: string;
  readonly ingest: string;
  readonly ops: string;
  readonly webhook: string;
  #child: ChildProcess | undefined;
  #output = '';
  #disposed = false;

  /** Writes the files without starting the agent. Sockets are in the folder, so that no free port is required. */
  constructor(platformUrl: string, files: AgentFiles = {}) {
    this.folder = mkdtempSync(join(tmpdir(), 'tagferry-process-'));
    this.config = join(this.folder, 'config');
    this.state = join(this.folder, 'state');
    this.ingest = join(this.folder, 'ingest.sock');
    this.ops = join(this.folder, 'ops.sock');
    this.webhook = join(this.folder, 'webhook.sock');
    mkdirSync(this.config);
    this.write(platformUrl, files);
  }

  write(platformUrl: string, files: AgentFiles): void {
    const env = {
      PLATFORM_URL: platformUrl,
      CLIENT_ID: SANDBOX_CREDENTIALS.clientId,
      CLIENT_SECRET: SANDBOX_CREDENTIALS.clientSecret,
      TECHNICAL_USERNAME: SANDBOX_CREDENTIALS.technicalUsername,
      TECHNICAL_PASSWORD: SANDBOX_CREDENTIALS.technicalPassword,
      STATE_DIR: this.state,
      INGEST_LISTEN: `unix:${this.ingest}`,
      OPS_LISTEN: `unix:${this.ops}`,
      WEBHOOK_LISTEN: `unix:${this.webhook}`,
      POST_INTERVAL: '200ms',
      COMMIT_INTERVAL: '20ms',
      REQUESTS_PER_MINUTE: '0',
      LOG_FORMAT: 'json',
      ...files.env,
    };
    const lines = Object.entries(env).map(([key, value]) => `${key}=${value}\n`);
    writeFileSync(join(this.config, 'agent.env'), lines.join(''), { mode: 0o600 });
    writeFileSync(join(this.config, 'tags.yaml'), files.tags ?? 'tags: {}\n');
    writeFileSync(join(this.config, 'reactions.yaml'), files.reactions ?? 'reactions: []\n');
  }

  /** Starts the agent and waits until it is ready. */
  async start(environment: NodeJS.ProcessEnv = {}): Promise<void> {
    this.launch(environment);
    await this.until(() => this.hasBeenReady, 'the agent is ready');
  }

  /** Whether the agent has reported readiness since its latest start. */
  get hasBeenReady(): boolean {
    return this.logged('agent.ready').length > this.#readyBefore;
  }

  #readyBefore = 0;

  /** Program and arguments that run Node in a specific environment. */
  surroundings: readonly string[] = [];

  /** Node options. */
  flags: readonly string[] = [];

  /** Arguments after the verb. */
  protected command(): readonly string[] {
    return [...this.surroundings, process.execPath, ...this.flags, MAIN];
  }

  /** Environment variables added to those of the test. */
  protected variables(): Record<string, string> {
    return COMPILED_CODE;
  }

  /** Starts the agent without waiting. */
  launch(environment: NodeJS.ProcessEnv = {}): ChildProcess {
    this.#readyBefore = this.logged('agent.ready').length;
    const clean = Object.fromEntries(Object.entries(process.env).filter(([key]) => !key.startsWith('NODE_')));
    const [program, ...before] = this.command();
    const child = spawn(program!, [...before, 'run', '--config', this.config], {
      cwd: this.folder,
      env: { ...clean, NO_COLOR: '1', ...this.variables(), ...environment },
      stdio: ['ignore', 'pipe', 'pipe'],
    });
    for (const stream of [child.stdout, child.stderr]) {
      stream.setEncoding('utf8').on('data', (text: string) => {
        this.#output += text;
      });
    }
    this.#child = child;
    return child;
  }

  get output(): string {
    return this.#output;
  }

  get pid(): number {
    return this.#child?.pid ?? 0;
  }

  /** Current resident memory, in MB; 0 if the agent is not running. */
  memoryMb(): number {
    try {
      const kB = /^VmRSS:\s+(\d+) kB$/m.exec(readFileSync(`/proc/${this.pid}/status`, 'utf8'))?.[1];
      return Math.round(Number(kB ?? 0) / 1024);
    } catch {
      return 0;
    }
  }

  /** Log lines with this event name. */
  logged(event: string): Record<string, unknown>[] {
    return this.#output
      .split('\n')
      .filter((line) => line.includes(`"event":"${event}"`))
      .map((line) => JSON.parse(line.slice(line.indexOf('{'))) as Record<string, unknown>);
  }

  /** Sends a signal and waits for the exit. Returns the exit status or the signal name. */
  async end(signal: NodeJS.Signals): Promise<number | string> {
    this.#child?.kill(signal);
    return this.ended();
  }

  ended(): Promise<number | string> {
    const child = this.#child;
    if (!child) return Promise.resolve(0);
    if (child.exitCode !== null || child.signalCode !== null)
      return Promise.resolve(child.exitCode ?? child.signalCode!);
    return new Promise((resolve) => child.once('exit', (code, signal) => resolve(code ?? signal ?? 0)));
  }

  signal(signal: NodeJS.Signals): void {
    this.#child?.kill(signal);
  }

  /** Sends a request to an agent socket. A request that is pending at `dispose` never settles. */
  call(
    socketPath: string,
    path: string,
    options: { method?: string; headers?: Record<string, string>; body?: string | Buffer } = {},
  ): Promise<{ status: number; text: string; headers: Record<string, unknown> }> {
    return new Promise((resolve, refuse) => {
      const reject = (error: Error) => {
        if (!this.#disposed) refuse(error);
      };
      const { method = options.body === undefined ? 'GET' : 'POST', headers = {}, body } = options;
      const outgoing = request({ socketPath, path, method, headers, agent: false }, (answer) => {
        let text = '';
        answer.setEncoding('utf8').on('data', (chunk: string) => {
          text += chunk;
        });
        answer.on('end', () => resolve({ status: answer.statusCode ?? 0, text, headers: answer.headers }));
        answer.on('error', reject);
      });
      outgoing.on('error', reject);
      outgoing.end(body);
    });
  }

  push(values: unknown[]): Promise<{ status: number; text: string; headers: Record<string, unknown> }> {
    const headers = { 'Content-Type': 'application/json' };
    return this.call(this.ingest, '/v1/values', { body: JSON.stringify({ values }), headers });
  }

  async status(): Promise<Record<string, unknown>> {
    return JSON.parse((await this.call(this.ops, '/status')).text) as Record<string, unknown>;
  }

  async metric(name: string): Promise<number> {
    const { status, text } = await this.call(this.ops, '/metrics');
    if (status !== 200) throw new Error(`/metrics: ${status} ${text}`);
    const lines = text.split('\n').filter((line) => line.startsWith(name) && !line.startsWith('#'));
    return lines.reduce((sum, line) => sum + Number(line.slice(line.lastIndexOf(' ') + 1)), 0);
  }

  /**
   * Waits until the agent has its webhook and secret. The platform creates the webhook slightly earlier: until then,
   * the agent responds 503 to deliveries and reports no webhook.
   */
  async registered(patienceMs?: number): Promise<void> {
    await this.until(() => this.logged('webhook.created').length > 0, 'the webhook is registered', patienceMs);
  }

  /** Waits for a condition. On timeout, the error names the condition and includes the agent output. */
  async until(condition: () => boolean | Promise<boolean>, what: string, patienceMs = PATIENCE_MS): Promise<void> {
    const end = performance.now() + patienceMs;
    for (;;) {
      if (await condition()) return;
      const child = this.#child;
      const over = child && (child.exitCode !== null || child.signalCode !== null);
      if (performance.now() > end || over) {
        throw new Error(
          `never came: ${what}${over ? ` (the agent ended: ${child.exitCode ?? child.signalCode})` : ''}\n${this.#output.slice(-6000)}`,
        );
      }
      await new Promise((resolve) => setTimeout(resolve, 20));
    }
  }

  /** Ends running processes and deletes the folder. */
  async dispose(): Promise<void> {
    this.#disposed = true;
    if (this.#child && this.#child.exitCode === null && this.#child.signalCode === null) await this.end('SIGKILL');
    rmSync(this.folder, { recursive: true, force: true });
  }

  /** Everything that the agent wrote to disk, to search it for secrets. */
  file(name: string): string {
    return readFileSync(join(this.state, name), 'latin1');
  }
}
