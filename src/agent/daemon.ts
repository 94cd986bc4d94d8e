/**
 * The daemon as a whole: makes the parts, starts them in order, stops them in reverse. It decides nothing itself.
 *
 * Start: stores (recovery; a disk that takes no writes is waited for), session, holds and reactions, uplink, then the
 * doors: webhook, values, operations, control. READY when all of them stand and the first login was tried. Stop: doors
 * first, what was taken in is committed, posts under way and reactions that run may finish, tokens are revoked, files
 * are closed.
 */
import { existsSync } from 'node:fs';
import { join } from 'node:path';
import type { Clock } from '../clock.ts';
import type { Configuration } from '../config/configuration.ts';
import { reloadedSettings } from '../config/reloaded-settings.ts';
import { messageOf } from '../errors.ts';
import type { Logger } from '../logger.ts';
import { compressing } from '../uplink/compression.ts';
import { fillValuesPath } from '../uplink/post.ts';
import { Uplink } from '../uplink/uplink.ts';
import { BufferFlow } from './buffer-flow.ts';
import { bufferRoutes } from './buffer-routes.ts';
import { controlRoutes } from './control-routes.ts';
import { ControlServer } from './control-server.ts';
import { diagnosePlatform } from './diagnosis.ts';
import { EventsFlow } from './events-flow.ts';
import { metricFigures } from './figures.ts';
import { firstLoginTried } from './first-login.ts';
import { createMetrics, type Metrics } from './metrics.ts';
import { OpsServer } from './ops-server.ts';
import { uplinkPace } from './pace.ts';
import { PlatformFlow } from './platform-flow.ts';
import { Quota } from './quota.ts';
import { Rates } from './rates.ts';
import { reloadConfiguration } from './reloading.ts';
import { ServiceManager } from './service-manager.ts';
import { SourcesFlow } from './sources-flow.ts';
import { statusLine } from './status-line.ts';
import { overallState, sessionReport, statusReport } from './status-report.ts';
import { neverRan, type StoreThread } from './store-client.ts';
import { trustedNowMs } from './trusted-time.ts';
import { WaitingRoom } from './waiting-room.ts';

export interface DaemonOptions {
  version: string;
  configuration: Configuration;
  /** Reads the configuration again; throws `ConfigurationError`. */
  readConfiguration(): Configuration;
  clock: Clock;
  log: Logger;
  environment: NodeJS.ProcessEnv;
  /** Something that cannot be waited out ended the store thread. */
  onFatal(error: Error): void;
  /** Launched while the configuration was read. */
  storeThread?: StoreThread;
}

/** INTERFACE.md, "Signals": posts under way, reactions and the revocation share it. */
const STOP_BUDGET_MS = 20_000;
/** Kept of it for the revocation, whatever the posts do. */
const REVOKE_BUDGET_MS = 5_000;
const STATUS_EVERY_MS = 10_000;
/** A store that has answered nothing for so long is stuck, not slow. */
const STORE_PATIENCE_MS = 120_000;

export class Daemon {
  readonly #options: DaemonOptions;
  #configuration: Configuration;
  readonly #metrics: Metrics;
  readonly #buffer: BufferFlow;
  readonly #platform: PlatformFlow;
  readonly #service: ServiceManager;
  readonly #waiting: WaitingRoom;
  readonly #stopping = new AbortController();
  readonly #startedMs: number;
  readonly #startedWallMs: number;
  #events!: EventsFlow;
  #uplink!: Uplink;
  #sources!: SourcesFlow;
  #ops: OpsServer | undefined;
  #control: ControlServer | undefined;
  #cancelStatus: () => void = () => {};
  readonly #rates: Rates;
  readonly #quota: Quota;
  #ingestedValues = 0;
  #stopped: Promise<void> | undefined;
  #ready = false;

  constructor(options: DaemonOptions) {
    const { configuration, clock, log, version, environment } = options;
    this.#options = options;
    this.#configuration = configuration;
    this.#startedMs = clock.monotonicMs();
    this.#startedWallMs = clock.wallMs();
    this.#metrics = createMetrics(() => this.#figures());
    const { settings } = configuration;
    this.#buffer = new BufferFlow({
      settings,
      clock,
      log,
      metrics: this.#metrics,
      onDeath: options.onFatal,
      storeThread: options.storeThread,
      trustedNowMs: () => trustedNowMs(clock, this.#platform.client.platformClock),
    });
    this.#platform = new PlatformFlow({
      settings,
      version,
      clock,
      log,
      onRenewal: (grant) => this.#metrics.renewals.inc({ grant }),
      neverRan: options.storeThread?.neverRan ?? neverRan(settings.stateDir),
    });
    this.#service = new ServiceManager({ clock, log, environment });
    const toldOfSession = () => sessionReport(this.#platform.session);
    this.#waiting = new WaitingRoom({ settings, clock, log, service: this.#service, session: toldOfSession });
    this.#rates = new Rates(this.#startedMs);
    this.#quota = new Quota(this.#platform.client, clock);
  }

  async start(): Promise<void> {
    const { configuration, clock, log, version } = this.#options;
    const { settings, tags, reactions } = configuration;
    const { client, session, budget } = this.#platform;
    if (!(await this.#waiting.until(() => this.#buffer.start()))) return;
    this.#events = new EventsFlow({
      settings,
      tags,
      reactions,
      buffer: this.#buffer,
      client,
      sendToPublic: (url) => this.#platform.senderTo(url),
      clock,
      log,
      metrics: this.#metrics,
      trustedNowMs: () => trustedNowMs(clock, client.platformClock),
    });
    this.#uplink = new Uplink(
      {
        buffer: this.#buffer.outgoing,
        access: this.#events.holds,
        client: settings.postGzip ? compressing(client) : client,
        budget,
        clock,
        log,
        pathOf: (asset) => this.#pathOf(asset),
        hooks: {
          posted: (outcome) => this.#metrics.posts.inc({ outcome }),
          delivered: (values) => this.#metrics.delivered.inc({}, values),
          quarantined: (reason, values) => this.#metrics.quarantined.inc({ reason }, values),
        },
      },
      uplinkPace(settings),
    );
    this.#uplink.onBack(() => this.#events.catchUp.readSoon());
    session.onChange(() => {
      if (session.snapshot().state !== 'valid') return;
      this.#uplink.tryNow();
      this.#events.registration.signedIn();
    });
    this.#sources = new SourcesFlow({
      settings,
      tags,
      catalogue: this.#buffer.catalogue,
      append: (columns) => this.#buffer.committer.append(columns),
      countIngested: (source, values) => {
        this.#ingestedValues += values;
        this.#metrics.ingested.inc({ source }, values);
      },
      brokers: this.#events.brokers,
      clock,
      log,
    });
    // The login is under way while everything else starts.
    await session.start(this.#stopping.signal);
    await this.#events.start();
    await this.#uplink.start(this.#stopping.signal);
    await this.#sources.start();
    await this.#openOperations();
    await firstLoginTried(session, clock);
    if (this.#stopped) return;
    this.#ready = true;
    log.info({ event: 'agent.ready', version, state: this.#state(), pid: process.pid }, 'tagferry is ready');
    await this.#service.ready(this.#statusLine());
    this.#service.startWatchdog(() => this.#isAlive());
    this.#keepStatus();
    if (settings.opsListen) await this.#metrics.registry();
  }

  async #openOperations(): Promise<void> {
    const { settings } = this.#configuration;
    if (settings.opsListen) {
      this.#ops = new OpsServer({
        health: () => this.#health(),
        readiness: () => this.#readiness(),
        status: () => this.status(),
        metrics: async () => {
          const registry = await this.#metrics.registry();
          return { contentType: registry.contentType, text: await registry.metrics() };
        },
      });
      await this.#ops.start(settings.opsListen);
      this.#options.log.info({ event: 'ops.listening', address: this.#ops.address }, 'Listening for operators');
    }
    this.#control = new ControlServer({
      ...controlRoutes({
        buffer: this.#buffer,
        events: this.#events,
        session: this.#platform.session,
        tryPosting: () => this.#uplink.tryNowAsTold(),
        status: async () => {
          await this.#quota.refresh();
          return this.status();
        },
        reload: () => this.reload(),
        diagnose: () => this.#diagnose(),
        setLogLevel: (level) => {
          this.#options.log.level = level;
        },
      }),
      ...bufferRoutes({
        flow: this.#buffer,
        tags: () => this.#configuration.tags.tags,
        intake: this.#sources.intake,
        clock: this.#options.clock,
        isHeld: (asset) => this.#events.holds.isHeld(asset),
      }),
    });
    await this.#control.start(this.#controlPath());
  }

  /** systemd makes the runtime folder for the service; elsewhere the socket stands beside the state. */
  #controlPath(): string {
    const runtime = this.#options.environment.RUNTIME_DIRECTORY?.split(':')[0];
    const folder = runtime && existsSync(runtime) ? runtime : this.#configuration.settings.stateDir;
    return join(folder, 'control.sock');
  }

  /** SIGHUP. A configuration with a problem leaves the old one in force; so does one that cannot be put in force whole. */
  async reload(): Promise<void> {
    if (this.#waiting.isOpen) return this.#waiting.refuseReload();
    await this.#service.reloading();
    try {
      await reloadConfiguration({
        read: () => this.#options.readConfiguration(),
        apply: (next) => this.#apply(next),
        inForce: this.#configuration,
        log: this.#options.log,
      });
    } finally {
      await this.#service.ready(this.#statusLine());
    }
  }

  /** Part by part; gives the keys that wait for a restart. */
  async #apply(next: Configuration): Promise<string[]> {
    const { tags, reactions } = next;
    const { settings, needRestart } = reloadedSettings(this.#configuration.settings, next.settings);
    this.#configuration = { ...next, settings };
    this.#options.log.level = settings.logLevel;
    this.#platform.reload(settings);
    await this.#buffer.reload(settings);
    this.#uplink.setPace(uplinkPace(settings));
    await this.#events.reload(tags, reactions);
    await this.#sources.reload(tags, settings.ingestToken);
    return needRestart;
  }

  status() {
    const { clock, version } = this.#options;
    const { settings } = this.#configuration;
    return statusReport({
      version,
      clock,
      startedWallMs: this.#startedWallMs,
      startedMonotonicMs: this.#startedMs,
      tags: () => this.#configuration.tags,
      stateDir: settings.stateDir,
      platformUrl: settings.platformUrl,
      webhookUrl: settings.webhookUrl,
      buffer: this.#buffer,
      session: this.#platform.session,
      budget: this.#platform.budget,
      uplink: this.#uplink,
      events: this.#events,
      rates: this.#rates.at(clock.monotonicMs(), this.#counters()),
      quota: this.#quota.known,
      addresses: () => ({ ingest: this.#sources.listening, ops: this.#ops?.address, control: this.#control?.path }),
    });
  }

  /** Stops in order; every failure on the way is reported, none ends it. */
  stop(): Promise<void> {
    this.#stopped ??= this.#stop();
    return this.#stopped;
  }

  async #stop(): Promise<void> {
    const { clock, log } = this.#options;
    const startMs = clock.monotonicMs();
    const left = () => Math.max(0, STOP_BUDGET_MS - REVOKE_BUDGET_MS - (clock.monotonicMs() - startMs));
    const step = async (name: string, work: Promise<unknown> | undefined) => {
      try {
        await work;
      } catch (error) {
        log.error({ event: 'agent.stop_failed', step: name, error: messageOf(error) }, 'a part did not stop cleanly');
      }
    };
    this.#cancelStatus();
    log.info({ event: 'agent.stopping' }, 'tagferry stops');
    void this.#service.stopping();
    await step('waiting', this.#waiting.stop());
    await step('sources', this.#sources?.stop());
    await Promise.all([step('uplink', this.#uplink?.stop(left())), step('events', this.#events?.stop(left()))]);
    await step('session', this.#platform.stop(Math.max(REVOKE_BUDGET_MS, left())));
    this.#stopping.abort(new Error('the agent stops'));
    await step('control', this.#control?.stop());
    await step('ops', this.#ops?.stop());
    await step('buffer', this.#buffer.stop());
    log.info({ event: 'agent.stopped' }, 'tagferry has stopped');
  }

  #counters() {
    return { ingested: this.#ingestedValues, delivered: this.#uplink.snapshot().deliveredValues };
  }

  #diagnose() {
    const { client } = this.#platform;
    const assets = [...this.#configuration.tags.tags.values()].map((tag) => tag.asset);
    const { requestsPerMinute } = this.#configuration.settings;
    const { clock } = this.#options;
    return diagnosePlatform({ client, clock, assets, requestsPerMinute, pathOf: (asset) => this.#pathOf(asset) });
  }

  #pathOf(asset: number): string {
    return fillValuesPath(this.#configuration.settings.valuesPath, asset, this.#instrumentationOf(asset));
  }

  #instrumentationOf(asset: number): number | undefined {
    for (const tag of this.#configuration.tags.tags.values()) {
      if (tag.asset === asset && tag.instrumentation !== undefined) return tag.instrumentation;
    }
    return undefined;
  }

  #state(): string {
    return overallState({ session: this.#platform.session, uplink: this.#uplink, buffer: this.#buffer });
  }

  #health() {
    const problems = [...this.#buffer.problems];
    return { ok: problems.length === 0, problems, session: sessionReport(this.#platform.session) };
  }

  #readiness() {
    const health = this.#health();
    return this.#ready ? health : { ...health, ok: false, problems: [...health.problems, 'the agent is starting'] };
  }

  #isAlive(): boolean {
    const nowMs = this.#options.clock.monotonicMs();
    const isStoreAlive = this.#buffer.isAlive(nowMs, STORE_PATIENCE_MS);
    return isStoreAlive && this.#uplink.isAlive(nowMs) && this.#events.runner.isAlive(nowMs, STORE_PATIENCE_MS);
  }

  #keepStatus(): void {
    this.#cancelStatus = this.#options.clock.after(STATUS_EVERY_MS, () => {
      this.#rates.sample(this.#options.clock.monotonicMs(), this.#counters());
      void this.#service.status(this.#statusLine());
      this.#keepStatus();
    });
  }

  #statusLine(): string {
    const { deliveredPerMinute } = this.#rates.at(this.#options.clock.monotonicMs(), this.#counters());
    return statusLine(this.#state(), deliveredPerMinute, this.#buffer.facts.segmentValues);
  }

  #figures() {
    return metricFigures({
      version: this.#options.version,
      startedWallMs: this.#startedWallMs,
      settings: this.#configuration.settings,
      buffer: this.#buffer,
      session: this.#platform.session,
      budget: this.#platform.budget,
      uplink: this.#uplink,
      events: this.#events,
      quota: this.#quota.known,
    });
  }
}
