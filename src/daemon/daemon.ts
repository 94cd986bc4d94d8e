/**
 * The daemon as a whole: opens the stores, starts the agent on them, and stops everything in order. It decides nothing itself.
 *
 * Start: stores (recovery; a disk that takes no writes is waited for, a backlog beyond the memory drained), session, then the
 * agent (running-agent.ts). READY when all of it stands and the first login was tried. Stop: what takes in first, what was taken in
 * is committed, posts under way and reactions that run may finish, tokens are revoked, files are closed.
 */
import type { Clock } from '../base/clock.ts';
import type { Logger } from '../base/logger.ts';
import type { RecentLines } from '../base/recent-lines.ts';
import type { ReadConfiguration } from '../config/configuration.ts';
import { createMetrics, type Metrics } from '../ops/metrics.ts';
import { neverRan, type StoreThread } from '../store/store-client.ts';
import { type BufferFlow, ClosedBuffer } from './buffer-flow.ts';
import { ConfigurationState, type FilesOptions } from './configuration-state.ts';
import { controlPath } from './control-path.ts';
import { DegradedStart } from './degraded-start.ts';
import { drainFirst } from './draining-start.ts';
import { firstLoginTried } from './first-login.ts';
import { collectGarbage } from './memory.ts';
import { PlatformFlow } from './platform-flow.ts';
import { RunningAgent } from './running-agent.ts';
import { ServiceManager } from './service-manager.ts';
import { stopSteps } from './stop-steps.ts';
import { trustedNowMs } from './trusted-time.ts';

export interface DaemonOptions extends FilesOptions {
  version: string;
  configuration: ReadConfiguration;
  /** Reads the configuration again; throws `ConfigurationError`. */
  readConfiguration(): Promise<ReadConfiguration>;
  clock: Clock;
  log: Logger;
  /** What `log` said last. */
  recentLines?: RecentLines;
  environment: NodeJS.ProcessEnv;
  /** Something that cannot be waited out ended the store thread. */
  onFatal(error: Error): void;
  /** The state folder was marked: nothing starts with it until `setup`. */
  onDecommissioned(): void;
  /** Launched while the configuration was read. */
  storeThread?: StoreThread;
}

/** docs/interface.md, "Signals": posts under way, reactions and the revocation share it. */
const STOP_BUDGET_MS = 20_000;
/** Kept of it for the revocation, whatever the posts do. */
const REVOKE_BUDGET_MS = 5_000;
/** Beyond it: whoever takes longer writes to a disk that does not answer. */
const WRITE_DOWN_MS = 2_000;
const STATUS_EVERY_MS = 10_000;

export class Daemon {
  readonly #options: DaemonOptions;
  readonly #metrics: Metrics;
  readonly #closed: ClosedBuffer;
  /** Open or not: whichever there is now is closed at the end. */
  #stores: Pick<BufferFlow, 'stop'>;
  readonly #platform: PlatformFlow;
  readonly #service: ServiceManager;
  readonly #controlPath: string;
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

  constructor(options: DaemonOptions) {
    const { configuration, clock, log, version, environment } = options;
    const { settings } = configuration;
    this.#options = options;
    this.#startedMs = clock.monotonicMs();
    this.#startedWallMs = clock.wallMs();
    this.#metrics = createMetrics(() => this.#agent.figures());
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
    this.#service = new ServiceManager({ clock, log, environment });
    this.#controlPath = controlPath(environment, settings.stateDir);
    const session = () => this.#platform.sessionReport();
    const waiting = { settings, clock, log, service: this.#service, session, controlPath: this.#controlPath };
    this.#waiting = new DegradedStart(waiting);
  }

  #makeBuffer(storeThread?: StoreThread): ClosedBuffer {
    const { clock, configuration, log, onFatal } = this.#options;
    const { settings } = configuration;
    const trustedTime = {
      nowMs: () => trustedNowMs(clock, this.#platform.client.platformClock),
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

  /** What was made before is closed, though its disk fails. */
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

  /** Rejects with what no other attempt mends. A stop takes from a start what it stands on: then it is over with the stop, and not failed. */
  async start(): Promise<void> {
    try {
      await Promise.race([this.#start(), this.#over.promise]);
    } catch (error) {
      if (!this.#stopped) throw error;
      await this.#stopped;
    }
  }

  async #start(): Promise<void> {
    const { clock, configuration, directory, environment, log, onDecommissioned, recentLines, version } = this.#options;
    const buffer = await this.#openStores();
    if (!buffer) return;
    await this.#files.started(configuration);
    if (this.#stopped) return;
    const { session } = this.#platform;
    const agent = new RunningAgent({
      version,
      configuration,
      buffer,
      platform: this.#platform,
      files: this.#files,
      directory,
      environment,
      metrics: this.#metrics,
      recentLines,
      controlPath: this.#controlPath,
      startedMs: this.#startedMs,
      startedWallMs: this.#startedWallMs,
      clock,
      log,
      reload: () => this.reload(),
      onDecommissioned,
    });
    this.#running = agent;
    // The login is under way while everything else starts.
    await this.#startSession();
    if (this.#stopped) return;
    await agent.start(this.#stopping.signal);
    await firstLoginTried(session, clock);
    // With it the program is whole: what comes can be served though no file may be opened any more.
    if (configuration.settings.opsListen) await this.#metrics.registry();
    if (this.#stopped) return;
    void this.#files.look();
    agent.isReady = true;
    log.info({ event: 'agent.ready', version, state: agent.state(), pid: process.pid }, 'tagferry is ready');
    await this.#service.ready(agent.statusLine());
    this.#service.startWatchdog(() => agent.isAlive());
    this.#keepStatus(agent);
  }

  /** `undefined` where the agent was stopped before they were open. */
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

  /** SIGHUP. A configuration with a problem leaves the old one in force; so does one that cannot be put in force whole. */
  reload(): Promise<void> {
    return this.#files.inTurn(async () => {
      if (this.#waiting.isOpen) return this.#waiting.refuseReload();
      await this.#service.reloading();
      try {
        await this.#files.reload({
          read: () => this.#options.readConfiguration(),
          apply: (next) => this.#agent.apply(next),
          inForce: this.#running?.configuration ?? this.#options.configuration,
        });
      } finally {
        await this.#service.ready(this.#running?.statusLine() ?? 'starting');
      }
    });
  }

  status() {
    return this.#agent.status();
  }

  /** Only what it has opened itself asks for it. */
  get #agent(): RunningAgent {
    if (!this.#running) throw new Error('the agent is starting');
    return this.#running;
  }

  /** Stops in order; every failure on the way is reported, none ends it. */
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
    log.info({ event: 'agent.stopping' }, 'tagferry stops');
    void this.#service.stopping();
    await step('waiting', this.#waiting.stop(), leftMs());
    await this.#running?.stopFlows(step, leftMs);
    const revokeMs = Math.max(REVOKE_BUDGET_MS, leftMs());
    await step('session', this.#platform.stop(revokeMs), revokeMs + WRITE_DOWN_MS);
    this.#stopping.abort(new Error('the agent stops'));
    await this.#running?.stopOperations(step);
    await step('buffer', this.#stores.stop());
    log.info({ event: 'agent.stopped' }, 'tagferry has stopped');
  }

  #keepStatus(agent: RunningAgent): void {
    this.#cancelStatus = this.#options.clock.after(STATUS_EVERY_MS, () => {
      agent.sampleRates();
      void this.#files.look();
      void this.#service.status(agent.statusLine());
      this.#keepStatus(agent);
    });
  }
}
