import { type ChildProcess, spawn } from 'node:child_process';
import { closeSync, mkdirSync, openSync, readFileSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import type { StatusReport } from '../../ops/status-report.ts';
import { SANDBOX_CREDENTIALS } from '../../sandbox/sandbox.ts';
import { DEMO_TAGS, GATEWAY_ASSET, LEVEL_LIMIT } from './plant.ts';

/**
 * Environment variables that the agent inherits. Other variables are not passed on, because an exported PLATFORM_URL
 * would send demo values to a real platform.
 */
const INHERITED = ['PATH', 'HOME', 'USER', 'LANG', 'LC_ALL', 'TZ', 'TMPDIR', 'LD_LIBRARY_PATH'];

const TIMEOUT_MS = 10_000;

/** The agent in a separate process: this program with the verb `run`. */
export class AgentChild {
  readonly #place: AgentPlace;
  readonly #onEnd: (how: string) => void;
  #child: ChildProcess | undefined;
  #ended: Promise<number | NodeJS.Signals> | undefined;
  #stopping = false;

  /** `onEnd` is called if the agent exits unexpectedly. */
  constructor(place: AgentPlace, onEnd: (how: string) => void) {
    this.#place = place;
    this.#onEnd = onEnd;
  }

  start(): void {
    const log = openSync(this.#place.log, 'a', 0o600);
    const environment = Object.fromEntries(Object.entries(process.env).filter(([name]) => INHERITED.includes(name)));
    const child = spawn(process.execPath, [process.argv[1]!, 'run', '--config', this.#place.config], {
      cwd: this.#place.folder,
      env: { ...environment, NO_COLOR: '1' },
      stdio: ['ignore', log, log],
      // Ctrl-C must reach only the demo, because a second signal would abort the agent's shutdown.
      detached: true,
    });
    closeSync(log);
    this.#child = child;
    this.#ended = new Promise((resolve) => {
      const end = (how: number | NodeJS.Signals) => {
        resolve(how);
        if (!this.#stopping) this.#onEnd(typeof how === 'number' ? `with exit status ${how}` : `by ${how}`);
      };
      child.once('exit', (code, signal) => end(code ?? signal ?? 1));
      child.once('error', () => end(1));
    });
  }

  get pid(): number | undefined {
    return this.#child?.pid;
  }

  get isRunning(): boolean {
    return this.#child !== undefined && this.#child.exitCode === null && this.#child.signalCode === null;
  }

  /** Sends SIGTERM and resolves with the exit status or the signal name. */
  stop(): Promise<number | NodeJS.Signals> {
    this.#stopping = true;
    this.#child?.kill('SIGTERM');
    return this.#ended ?? Promise.resolve(0);
  }

  kill(): void {
    this.#stopping = true;
    this.#child?.kill('SIGKILL');
  }

  /** Returns the `/status` response, or `undefined` if the agent does not respond. */
  async status(): Promise<StatusReport | undefined> {
    const response = await this.#get('/status');
    return response?.ok ? ((await response.json()) as StatusReport) : undefined;
  }

  async isReady(): Promise<boolean> {
    return (await this.#get('/readyz'))?.status === 200;
  }

  async #get(path: string): Promise<Response | undefined> {
    const { port, token } = this.#place.ops;
    const options = { headers: { Authorization: `Bearer ${token}` }, signal: AbortSignal.timeout(TIMEOUT_MS) };
    return fetch(`http://127.0.0.1:${port}${path}`, options).catch(() => undefined);
  }

  latestLogLines(lines: number): string[] {
    try {
      return readFileSync(this.#place.log, 'utf8').trimEnd().split('\n').slice(-lines);
    } catch {
      return [];
    }
  }
}

/** Paths of the agent's files in the demo's temporary folder. */
export interface AgentPlace {
  folder: string;
  config: string;
  log: string;
  ingest: string;
  /** Port and token of the live page. */
  ops: { port: number; token: string };
  /** Files to which the commands run by the reaction and the local rule write their event. */
  reactionFile: string;
  ruleFile: string;
}

export function placeIn(folder: string, ops: AgentPlace['ops']): AgentPlace {
  return {
    folder,
    config: join(folder, 'config'),
    log: join(folder, 'agent.log'),
    ingest: join(folder, 'ingest.sock'),
    ops,
    reactionFile: join(folder, 'close-valve.event'),
    ruleFile: join(folder, 'drain-tank.event'),
  };
}

export interface AgentSettings {
  platformUrl: string;
  webhookPort: number;
  backfillValuesPerSecond: number;
}

/** Writes agent.env, tags.yaml, reactions.yaml and the reaction command. */
export function writeAgentFiles(place: AgentPlace, options: AgentSettings): void {
  const { platformUrl, webhookPort } = options;
  mkdirSync(place.config);
  const settings = {
    PLATFORM_URL: platformUrl,
    CLIENT_ID: SANDBOX_CREDENTIALS.clientId,
    CLIENT_SECRET: SANDBOX_CREDENTIALS.clientSecret,
    TECHNICAL_USERNAME: SANDBOX_CREDENTIALS.technicalUsername,
    TECHNICAL_PASSWORD: SANDBOX_CREDENTIALS.technicalPassword,
    STATE_DIR: join(place.folder, 'state'),
    INGEST_LISTEN: `unix:${place.ingest}`,
    OPS_LISTEN: `127.0.0.1:${place.ops.port}`,
    OPS_TOKEN: place.ops.token,
    WEBHOOK_LISTEN: `127.0.0.1:${webhookPort}`,
    WEBHOOK_URL: `http://127.0.0.1:${webhookPort}/webhook`,
    POST_INTERVAL: '1s',
    COMMIT_INTERVAL: '300ms',
    REQUESTS_PER_MINUTE: '0',
    BACKFILL_VALUES_PER_SECOND: String(options.backfillValuesPerSecond),
    // The demo must also run on a nearly full disk.
    BUFFER_MIN_FREE: '0',
    BUFFER_MAX_BYTES: '64MiB',
    LOG_FORMAT: 'json',
  };
  const lines = Object.entries(settings).map(([key, value]) => `${key}=${value}\n`);
  writeFileSync(join(place.config, 'agent.env'), lines.join(''), { mode: 0o600 });
  writeFileSync(join(place.config, 'tags.yaml'), tagsFile());
  const command = join(place.folder, 'close-valve');
  writeFileSync(command, COMMAND, { mode: 0o700 });
  writeFileSync(join(place.config, 'reactions.yaml'), reactionsFile(command, place));
}

function tagsFile(): string {
  const pushed = DEMO_TAGS.map(
    ({ name, asset, instrumentation, key, unit }) =>
      `  ${name}: { asset: ${asset}, instrumentation: ${instrumentation}, values: { ${key}: { unit: { code: ${unit} } } } }`,
  );
  return `sources:
  self: { host: true, every: 1s }
tags:
${pushed.join('\n')}
  GW-01:
    asset: ${GATEWAY_ASSET}
    values:
      load: { unit: { code: one }, from: self, reading: load1 }
      processor: { unit: { code: one }, from: self, reading: cpu_share }
      memory: { unit: { code: one }, from: self, reading: memory_share }
      disk: { unit: { code: one }, from: self, reading: disk_share }
`;
}

/** Specifies the shell, because the folder can be on a file system mounted with noexec. */
function reactionsFile(command: string, { reactionFile, ruleFile }: AgentPlace): string {
  return `reactions:
  - name: close-inlet-valve
    on: threshold_reached
    if: { tag: FT-101, threshold.type: high }
    do:
      - run: [/bin/sh, ${JSON.stringify(command)}, FT-101, ${JSON.stringify(reactionFile)}]
        timeout: 5s
  - name: drain-tank
    on: value
    if: { tag: LT-101, key: level, above: ${LEVEL_LIMIT} }
    do:
      - run: [/bin/sh, ${JSON.stringify(command)}, LT-101, ${JSON.stringify(ruleFile)}]
        timeout: 5s
`;
}

const COMMAND = `# Called by the reaction with the tag and a file; the event's JSON is on standard input.
cat > "$2.part" && mv "$2.part" "$2"
echo "valve of $1 operated"
`;
