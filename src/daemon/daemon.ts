/**
 * The daemon as a whole: makes the parts, starts them in order, stops them in reverse. It decides nothing itself.
 *
 * Start: stores (recovery; a disk that takes no writes is waited for), session, holds and reactions, uplink, then the
 * doors: webhook, values, operations, control. READY when all of them stand and the first login was tried. Stop: doors
 * first, what was taken in is committed, posts under way and reactions that run may finish, tokens are revoked, files
 * are closed.
 */
import type { Clock } from '../base/clock.ts';
import type { Logger } from '../base/logger.ts';
import type { RecentLines } from '../base/recent-lines.ts';
import type { Configuration, ReadConfiguration } from '../config/configuration.ts';
import { reloadedSettings } from '../config/reloaded-settings.ts';
import type { KeyName } from '../config/setting-keys.ts';
import { ControlServer } from '../control/control-server.ts';
import { diagnosePlatform, objectsOfTags } from '../control/diagnosis.ts';
import { metricFigures } from '../ops/figures.ts';
import { createMetrics, type Metrics } from '../ops/metrics.ts';
import { OpsServer, type OpsSources } from '../ops/ops-server.ts';
import { Quota } from '../ops/quota.ts';
import { Rates } from '../ops/rates.ts';
import { statusLine } from '../ops/status-line.ts';
import { overallState, statusReport } from '../ops/status-report.ts';
import { SOURCE_KINDS } from '../sources/kinds.ts';
import { silentNotes } from '../sources/source-report.ts';
import { neverRan, type StoreThread } from '../store/store-client.ts';
import { fillValuesPath, PostAddresses } from '../uplink/post-address.ts';
import type { Uplink } from '../uplink/uplink.ts';
import { BufferFlow } from './buffer-flow.ts';
import { certificateFiles } from './certificate-files.ts';
import { ConfigurationState, type FilesOptions } from './configuration-state.ts';
import { controlPath } from './control-path.ts';
import { DegradedStart } from './degraded-start.ts';
import { drainFirst } from './draining-start.ts';
import { EventsFlow } from './events-flow.ts';
import { firstLoginTried } from './first-login.ts';
import { collectGarbage } from './memory.ts';
import { operatorRoutes } from './operator-routes.ts';
import { uplinkPace } from './pace.ts';
import { PlatformFlow } from './platform-flow.ts';
import { ServiceManager } from './service-manager.ts';
import { SourcesFlow } from './sources-flow.ts';
import { stopSteps } from './stop-steps.ts';
import { eventNowMs, trustedNowMs } from './trusted-time.ts';
import { makeUplink } from './uplink-making.ts';

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
const STATUS_EVERY_MS = 10_000;
/** A store that has answered nothing for so long is stuck, not slow. */
const STORE_PATIENCE_MS = 120_000;

export class Daemon {
  readonly #options: DaemonOptions;
  #configuration: Configuration;
  readonly #metrics: Metrics;
  #buffer: BufferFlow;
  readonly #platform: PlatformFlow;
  readonly #service: ServiceManager;
  readonly #waiting: DegradedStart;
  readonly #files: ConfigurationState;
  readonly #stopping = new AbortController();
  readonly #startedMs: number;
  readonly #startedWallMs: number;
  #events!: EventsFlow;
  #addresses!: PostAddresses;
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
    this.#files = new ConfigurationState(options);
    const { settings } = configuration;
    this.#buffer = this.#makeBuffer(options.storeThread);
    this.#platform = new PlatformFlow({
      settings,
      version,
      clock,
      log,
      onRenewal: (grant) => this.#metrics.renewals.inc({ grant }),
      neverRan: options.storeThread?.neverRan ?? neverRan(settings.stateDir),
    });
    this.#service = new ServiceManager({ clock, log, environment });
    const session = () => this.#platform.sessionReport();
    const place = controlPath(environment, settings.stateDir);
    this.#waiting = new DegradedStart({ settings, clock, log, service: this.#service, session, controlPath: place });
    this.#rates = new Rates(this.#startedMs);
    this.#quota = new Quota(this.#platform.client, clock);
  }

  #makeBuffer(storeThread?: StoreThread): BufferFlow {
    const { clock, log, onFatal } = this.#options;
    const { settings } = this.#configuration;
    const time = { trustedNowMs: () => trustedNowMs(clock, this.#platform.client.platformClock) };
    return new BufferFlow({ settings, clock, log, metrics: this.#metrics, onDeath: onFatal, storeThread, ...time });
  }

  /** What was made before is closed, though its disk fails. The new one is not open yet. */
  async #renewBuffer(): Promise<BufferFlow> {
    await stopSteps(this.#options.log)('buffer', this.#buffer.stop());
    collectGarbage();
    this.#buffer = this.#makeBuffer();
    return this.#buffer;
  }

  async start(): Promise<void> {
    const { configuration, clock, log, version } = this.#options;
    const { settings, tags, reactions } = configuration;
    const { client, session } = this.#platform;
    if (!(await this.#waiting.until(() => this.#buffer.start()))) return;
    const flows = { settings, clock, log, platform: this.#platform, metrics: this.#metrics };
    let login: Promise<void> | undefined;
    const startSession = () => (login ??= session.start(this.#stopping.signal));
    const renew = () => this.#renewBuffer();
    const draining = { ...flows, tags: tags.tags, waiting: this.#waiting, startSession, renew };
    if (!(await drainFirst(this.#buffer, draining))) return;
    await this.#files.started(configuration);
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
      nowMs: () => eventNowMs(clock, client.platformClock, this.#ready),
    });
    this.#addresses = new PostAddresses(this.#buffer.catalogue, settings.valuesPath, tags.tags.values());
    const { outgoing } = this.#buffer;
    this.#uplink = makeUplink({ ...flows, buffer: outgoing, access: this.#events.holds, addresses: this.#addresses });
    this.#uplink.onBack(() => this.#events.catchUp.readSoon());
    session.onChange(() => {
      if (session.snapshot().state !== 'valid') return;
      this.#uplink.tryNow();
      this.#events.registration.signedIn();
    });
    this.#sources = new SourcesFlow({
      settings,
      tags,
      kinds: SOURCE_KINDS,
      buffer: this.#buffer,
      countIngested: (source, values) => {
        this.#ingestedValues += values;
        this.#metrics.ingested.inc({ source }, values);
      },
      countAhead: (source, values) => this.#metrics.ahead.inc({ source }, values),
      brokers: this.#events.brokers,
      clock,
      log,
    });
    // The login is under way while everything else starts.
    await startSession();
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
    const { clock, log } = this.#options;
    if (settings.opsListen) {
      const sources: OpsSources = {
        health: () => this.#health(),
        readiness: () => this.#readiness(),
        status: () => this.status(),
        metrics: async () => {
          const registry = await this.#metrics.registry();
          return { contentType: registry.contentType, text: await registry.metrics() };
        },
      };
      const tls = certificateFiles(settings, 'ops');
      this.#ops = new OpsServer(sources, { address: settings.opsListen, tls, access: settings, clock, log });
      await this.#ops.start();
      log.info({ event: 'ops.listening', address: this.#ops.address }, 'Listening for operators');
    }
    const routes = operatorRoutes({
      settings,
      buffer: this.#buffer,
      events: this.#events,
      sources: this.#sources,
      session: this.#platform.session,
      tags: () => this.#configuration.tags.tags,
      tryPosting: () => this.#uplink.tryNowOnRequest(),
      status: () => this.#quota.refresh().then(() => this.status()),
      reload: () => this.reload().then(() => this.#files.report()),
      diagnose: () => this.#diagnose(),
      leave: () => this.#options.onDecommissioned(),
      recentLines: this.#options.recentLines,
      clock,
      log,
    });
    const path = controlPath(this.#options.environment, settings.stateDir);
    this.#control = new ControlServer(routes, { path, clock, log });
    await this.#control.start();
  }

  /** SIGHUP. A configuration with a problem leaves the old one in force; so does one that cannot be put in force whole. */
  reload(): Promise<void> {
    return this.#files.inTurn(async () => {
      if (this.#waiting.isOpen) return this.#waiting.refuseReload();
      await this.#service.reloading();
      try {
        await this.#files.reload({
          read: () => this.#options.readConfiguration(),
          apply: (next) => this.#apply(next),
          inForce: this.#configuration,
        });
      } finally {
        await this.#service.ready(this.#statusLine());
      }
    });
  }

  /** Part by part; gives the keys that wait for a restart. */
  async #apply(next: Configuration): Promise<KeyName[]> {
    const { tags, reactions } = next;
    const { settings, needRestart } = reloadedSettings(this.#configuration.settings, next.settings);
    this.#configuration = { tags, reactions, settings };
    this.#options.log.level = settings.logLevel;
    this.#platform.reload(settings);
    await this.#buffer.reload(settings);
    if (this.#addresses.replace(settings.valuesPath, tags.tags.values())) this.#uplink.addressesChanged();
    this.#uplink.setPace(uplinkPace(settings));
    await this.#events.reload(tags, reactions);
    this.#ops?.setAccess(settings);
    await this.#sources.reload(tags, settings);
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
      configuration: this.#files.report(),
      buffer: this.#buffer,
      session: this.#platform.session,
      budget: this.#platform.budget,
      uplink: this.#uplink,
      events: this.#events,
      rates: this.#rates.at(clock.monotonicMs(), this.#counters()),
      quota: this.#quota.known,
      sources: this.#sources.reports(),
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
    const step = stopSteps(log);
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
    const { requestsPerMinute } = this.#configuration.settings;
    const named = objectsOfTags(this.#configuration.tags);
    const { clock } = this.#options;
    return diagnosePlatform({ client, clock, ...named, requestsPerMinute, pathOf: (asset) => this.#pathOf(asset) });
  }

  #pathOf(asset: number): string {
    const { settings, tags } = this.#configuration;
    const ofAsset = [...tags.tags.values()].filter((tag) => tag.asset === asset);
    return fillValuesPath(settings.valuesPath, asset, ofAsset.find((tag) => tag.instrumentation)?.instrumentation);
  }

  #state(): string {
    return overallState({ session: this.#platform.session, uplink: this.#uplink, buffer: this.#buffer });
  }

  #health() {
    const problems = [...this.#buffer.problems];
    const notes = [...this.#files.notes, ...silentNotes(this.#sources.reports())];
    return { ok: problems.length === 0, problems, notes, session: this.#platform.sessionReport() };
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
    const line = statusLine(this.#state(), deliveredPerMinute, this.#buffer.facts.segmentValues);
    return `${line}${this.#files.statusWords}`;
  }

  #figures() {
    return metricFigures({
      version: this.#options.version,
      startedWallMs: this.#startedWallMs,
      settings: this.#configuration.settings,
      filesRefusedSinceSeconds: this.#files.refusedSinceSeconds,
      buffer: this.#buffer,
      session: this.#platform.session,
      budget: this.#platform.budget,
      uplink: this.#uplink,
      events: this.#events,
      quota: this.#quota.known,
      sources: this.#sources.reports(),
    });
  }
}
