/**
 * Lifecycle of the agent: opens the stores, starts all parts and stops them in order. Contains no other logic.
 *
 * Startup order: listeners (respond with 503 until the other parts have started) and stores (recovers them, waits while
 * the disk is read-only, drains a backlog that exceeds the memory) at the same time, session, then the other parts
 * (running-agent.ts). READY is sent when all parts have started and the first login has been attempted. Shutdown: values
 * are rejected with 503, accepted values are committed, pending posts and running reactions are allowed to finish, tokens
 * are revoked, and listeners and files are closed.
 */

import { existsSync } from 'node:fs';
import { join } from 'node:path';
import type { Clock } from '../base/clock.ts';
import type { RecentLines } from '../base/recent-lines.ts';
import type { ReadConfiguration } from '../config/configuration.ts';
import { reloadedSettings } from '../config/reloaded-settings.ts';
import type { Settings } from '../config/settings.ts';
import { createMetrics, type Metrics } from '../ops/metrics.ts';
import type { Session } from '../platform/session/session.ts';
import { neverRan, type StoreThread } from '../store/store-client.ts';
import { type BufferFlow, ClosedBuffer } from './buffer-flow.ts';
import { ConfigurationState, type FilesOptions } from './configuration-state.ts';
import { DegradedStart } from './degraded-start.ts';
import { drainFirst } from './draining-start.ts';
import { Listeners } from './listeners.ts';
import { collectGarbage } from './memory.ts';
import { PlatformFlow } from './platform-flow.ts';
import { CLOSE_MS, RunningAgent, type RunningAgentOptions, stopSteps } from './running-agent.ts';
import { Systemd } from './systemd.ts';

export interface AgentOptions extends FilesOptions, Pick<RunningAgentOptions, 'version' | 'onDecommissioned'> {
  configuration: ReadConfiguration;
  /** Reads the configuration again. Throws `ConfigurationError`. */
  readConfiguration(): Promise<ReadConfiguration>;
  /** Most recent lines written to `log`. */
  recentLines?: RecentLines;
  /** Called when the store thread exited because of an unrecoverable error. */
  onFatal(error: Error): void;
  /** Store thread that was launched while the configuration was being read. */
  storeThread?: StoreThread;
}

/** Shared by pending posts, reactions and token revocation (docs/interface.md, "Signals"). */
const STOP_BUDGET_MS = 20_000;
/** Part of the shutdown budget that is reserved for token revocation. */
const REVOKE_BUDGET_MS = 5_000;
/** Additional time to write state. If it is exceeded, the disk is considered unresponsive. */
const WRITE_DOWN_MS = 2_000;
const STATUS_EVERY_MS = 10_000;

export class Agent {
  readonly #options: AgentOptions;
  readonly #metrics: Metrics;
  readonly #closed: ClosedBuffer;
  /** Stores to close at shutdown, whether open or not. */
  #stores: Pick<BufferFlow, 'stop'>;
  readonly #platform: PlatformFlow;
  readonly #service: Systemd;
  readonly #controlPath: string;
  readonly #listeners: Listeners;
  readonly #waiting: DegradedStart;
  readonly #files: ConfigurationState;
  readonly #stopping = new AbortController();
  readonly #startedMs: number;
  readonly #startedWallMs: number;
  #running: RunningAgent | undefined;
  #login: Promise<void> | undefined;
  #cancelStatus: () => void = () => {};
  #stopped: Promise<void> | undefined;
  readonly #over = Promise.withResolvers<void>();
  /** Resolves when startup is complete. */
  readonly #started = Promise.withResolvers<void>();
  /** Reload that was requested during startup and runs after startup. */
  #reloadAfterStart: Promise<void> | undefined;

  constructor(options: AgentOptions) {
    const { configuration, clock, log, version, environment } = options;
    const { settings } = configuration;
    this.#options = options;
    this.#startedMs = clock.monotonicMs();
    this.#startedWallMs = clock.wallMs();
    this.#metrics = createMetrics(() => this.#agent.metricParts());
    this.#files = new ConfigurationState(options, configuration);
    this.#closed = this.#makeBuffer(options.storeThread);
    this.#stores = this.#closed;
    this.#platform = new PlatformFlow({
      settings,
      version,
      clock,
      log,
      onRenewal: (grant) => this.#metrics.renewals.inc({ grant }),
      neverRan: options.storeThread?.neverRan ?? neverRan(settings.stateDir),
      environment,
    });
    this.#service = new Systemd({ clock, log, environment });
    this.#controlPath = controlPath(environment, settings.stateDir);
    this.#listeners = new Listeners({
      settings,
      certificates: this.#platform.certificates,
      clock,
      log,
      unavailable: () => this.#running?.unavailable ?? this.#waiting.unavailable,
      session: () => this.#platform.session.snapshot(),
    });
    this.#waiting = new DegradedStart({
      clock,
      log,
      service: this.#service,
      listeners: this.#listeners,
      controlPath: this.#controlPath,
    });
  }

  #makeBuffer(storeThread?: StoreThread): ClosedBuffer {
    const { clock, configuration, log, onFatal } = this.#options;
    const { settings } = configuration;
    const trustedTime = {
      nowMs: () => this.#platform.trustedNowMs(),
      isExpected: () => this.#platform.session.snapshot().state !== 'valid',
    };
    return new ClosedBuffer({
      settings,
      clock,
      log,
      metrics: this.#metrics,
      onDeath: onFatal,
      storeThread,
      trustedTime,
    });
  }

  /** Closes the previous buffer even if its disk fails. */
  async #renewBuffer(): Promise<Pick<ClosedBuffer, 'open'>> {
    await stopSteps(this.#options.log, this.#options.clock)('buffer', this.#stores.stop());
    collectGarbage();
    const closed = this.#makeBuffer();
    this.#stores = closed;
    return { open: () => this.#open(closed) };
  }

  async #open(closed: ClosedBuffer): Promise<BufferFlow> {
    const buffer = await closed.open();
    this.#stores = buffer;
    if (buffer.facts.notLoaded > 0) collectGarbage();
    return buffer;
  }

  /**
   * Rejects with errors that a retry cannot fix. If `stop` interrupts the startup, resolves when the stop has
   * finished.
   */
  async start(): Promise<void> {
    try {
      await Promise.race([this.#start(), this.#over.promise]);
    } catch (error) {
      if (!this.#stopped) throw error;
      await this.#stopped;
    }
  }

  async #start(): Promise<void> {
    const { clock, configuration, log, version } = this.#options;
    const [buffer] = await Promise.all([this.#openStores(), this.#listeners.start()]);
    if (!buffer) return;
    await this.#files.started(configuration);
    if (this.#stopped) return;
    const { session } = this.#platform;
    const agent = new RunningAgent({
      ...this.#options,
      directory: this.#options.directory,
      buffer,
      platform: this.#platform,
      files: this.#files,
      listeners: this.#listeners,
      metrics: this.#metrics,
      controlPath: this.#controlPath,
      startedMs: this.#startedMs,
      startedWallMs: this.#startedWallMs,
      reload: () => this.reload(),
    });
    this.#running = agent;
    // The login runs while the other parts start.
    await this.#startSession();
    if (this.#stopped) return;
    await agent.start();
    await firstLoginTried(session, clock);
    // Load the metrics registry last. After that, requests can be served even if no more files can be opened.
    if (configuration.settings.opsListen) await this.#metrics.registry();
    if (this.#stopped) return;
    void this.#files.checkFiles();
    agent.isReady = true;
    log.info({ event: 'agent.ready', version, state: agent.state(), pid: process.pid }, 'tagferry is ready');
    await this.#service.ready(agent.statusLine());
    this.#service.startWatchdog(() => agent.isAlive());
    this.#keepStatus(agent);
    this.#started.resolve();
  }

  /** Returns `undefined` if the agent was stopped before the stores were open. */
  async #openStores(): Promise<BufferFlow | undefined> {
    const { clock, configuration, log } = this.#options;
    const { settings, tags } = configuration;
    const buffer = await this.#waiting.until(() => this.#open(this.#closed));
    return (
      buffer &&
      (await drainFirst(buffer, {
        settings,
        clock,
        log,
        platform: this.#platform,
        metrics: this.#metrics,
        tags: tags.tags,
        waiting: this.#waiting,
        startSession: () => this.#startSession(),
        renew: () => this.#renewBuffer(),
      }))
    );
  }

  #startSession(): Promise<void> {
    this.#login ??= this.#platform.session.start(this.#stopping.signal);
    return this.#login;
  }

  /**
   * Handles SIGHUP. Requests during startup are combined into one reload after startup. If the configuration is invalid
   * or cannot be applied completely, the previous one stays in use.
   */
  reload(): Promise<void> {
    if (this.#running?.isReady) return this.#reload();
    if (this.#waiting.isWaiting) void this.#waiting.postponeReload();
    this.#reloadAfterStart ??= this.#started.promise.then(() => this.#reload());
    return this.#reloadAfterStart;
  }

  #reload(): Promise<void> {
    return this.#files.inTurn(async () => {
      await this.#service.reloading();
      const current = this.#running?.configuration ?? this.#options.configuration;
      try {
        await this.#files.reload({
          read: () => this.#readAndSignIn(current.settings),
          apply: (next) => this.#agent.apply(next),
          current,
        });
      } finally {
        await this.#service.ready(this.#running?.statusLine() ?? 'starting');
      }
    });
  }

  /** Reads the files and tests changed credentials. Throws `ConfigurationError` if either is rejected. */
  async #readAndSignIn(inForce: Settings): Promise<ReadConfiguration> {
    const next = await this.#options.readConfiguration();
    const warning = await this.#platform.tryCredentials(reloadedSettings(inForce, next.settings).settings);
    return warning === undefined ? next : { ...next, warnings: [...(next.warnings ?? []), warning] };
  }

  status() {
    return this.#agent.status();
  }

  /** Running agent. Must not be used during startup. */
  get #agent(): RunningAgent {
    if (!this.#running) throw new Error('the agent is starting');
    return this.#running;
  }

  /** Stops all parts in order. Reports each failure and continues. */
  stop(): Promise<void> {
    this.#stopped ??= this.#stop().finally(this.#over.resolve);
    return this.#stopped;
  }

  async #stop(): Promise<void> {
    const { clock, log } = this.#options;
    const startMs = clock.monotonicMs();
    const leftMs = () => Math.max(0, STOP_BUDGET_MS - REVOKE_BUDGET_MS - (clock.monotonicMs() - startMs));
    const step = stopSteps(log, clock);
    this.#cancelStatus();
    log.info({ event: 'agent.stopping' }, 'tagferry is stopping');
    const notified = this.#service.stopping();
    this.#platform.client.stopRetries();
    await step('waiting', this.#waiting.stop(), leftMs());
    await this.#running?.stopFlows(step, leftMs);
    const revokeMs = Math.max(REVOKE_BUDGET_MS, leftMs());
    await step('session', this.#platform.stop(revokeMs), revokeMs + WRITE_DOWN_MS);
    this.#stopping.abort(new Error('the agent is stopping'));
    await this.#running?.stopOperations(step);
    await step('listeners', this.#listeners.stop(), CLOSE_MS);
    await step('buffer', this.#stores.stop());
    await step('service', notified, WRITE_DOWN_MS);
    log.info({ event: 'agent.stopped' }, 'tagferry stopped');
  }

  #keepStatus(agent: RunningAgent): void {
    this.#cancelStatus = this.#options.clock.after(STATUS_EVERY_MS, () => {
      agent.sampleRates();
      void this.#files.checkFiles();
      void this.#service.status(agent.statusLine());
      this.#keepStatus(agent);
    });
  }
}

/** Maximum delay of READY if the platform does not respond to the first login attempt. */
const FIRST_LOGIN_MS = 10_000;

/** Resolves when the first login has succeeded, failed or timed out. */
async function firstLoginTried(session: Pick<Session, 'snapshot' | 'onChange'>, clock: Clock): Promise<void> {
  const isTried = () => ['valid', 'waiting', 'revoked'].includes(session.snapshot().state);
  if (isTried()) return;
  const tried = Promise.withResolvers<void>();
  const removeListener = session.onChange(() => isTried() && tried.resolve());
  const cancel = clock.after(FIRST_LOGIN_MS, tried.resolve);
  await tried.promise;
  removeListener();
  cancel();
}

/**
 * Returns the path of the control socket: in the runtime folder of the service under systemd, otherwise in the state
 * folder.
 */
function controlPath(environment: NodeJS.ProcessEnv, stateDir: string): string {
  const runtime = environment.RUNTIME_DIRECTORY?.split(':')[0];
  return join(runtime && existsSync(runtime) ? runtime : stateDir, 'control.sock');
}
