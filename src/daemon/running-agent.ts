/**
 * The agent once its stores are open: the two flows, and what operators see of them. The parts are made together and handed to each
 * other here; daemon.ts says when they start and stop.
 *
 * Start: events, uplink, then the listeners: values, operations, control. Stop: in reverse, the flows first.
 */
import { AcceptedObjects } from '../access/accepted-objects.ts';
import { certificateNotes } from '../base/certificates.ts';
import type { Clock } from '../base/clock.ts';
import { conflictNotes } from '../base/identity-conflicts.ts';
import type { Logger } from '../base/logger.ts';
import type { RecentLines } from '../base/recent-lines.ts';
import type { Configuration } from '../config/configuration.ts';
import { reloadedSettings } from '../config/reloaded-settings.ts';
import type { KeyName } from '../config/setting-keys.ts';
import { ControlServer } from '../control/control-server.ts';
import { diagnosePlatform, objectsOfTags } from '../control/diagnosis.ts';
import { metricFigures } from '../ops/figures.ts';
import type { Metrics } from '../ops/metrics.ts';
import { OpsServer, type OpsSources } from '../ops/ops-server.ts';
import { Quota } from '../ops/quota.ts';
import { Rates } from '../ops/rates.ts';
import { statusLine } from '../ops/status-line.ts';
import { overallState, statusReport } from '../ops/status-report.ts';
import { silentTargetNotes } from '../reactions/targets.ts';
import { SOURCE_KINDS } from '../sources/kinds.ts';
import { certificatesInUse, sourceNotes } from '../sources/source-report.ts';
import { fillValuesPath, PostAddresses } from '../uplink/post-address.ts';
import type { Uplink } from '../uplink/uplink.ts';
import { disabledNotes } from '../webhook/enablement.ts';
import type { BufferFlow } from './buffer-flow.ts';
import { certificateFiles } from './certificate-files.ts';
import type { ConfigurationState } from './configuration-state.ts';
import { runDoctor } from './doctor-program.ts';
import { EventsFlow } from './events-flow.ts';
import { LiveFlow } from './live-flow.ts';
import { liveParts } from './live-parts.ts';
import { operatorRoutes } from './operator-routes.ts';
import { uplinkPace } from './pace.ts';
import type { PlatformFlow } from './platform-flow.ts';
import { SourcesFlow } from './sources-flow.ts';
import type { StopStep } from './stop-steps.ts';
import { eventTime } from './trusted-time.ts';
import { makeUplink } from './uplink-making.ts';

export interface RunningAgentOptions {
  version: string;
  configuration: Configuration;
  buffer: BufferFlow;
  platform: PlatformFlow;
  files: ConfigurationState;
  /** Of the configuration. */
  directory: string | undefined;
  environment: NodeJS.ProcessEnv;
  metrics: Metrics;
  /** What `log` said last. */
  recentLines?: RecentLines | undefined;
  /** Where the operators' socket is. */
  controlPath: string;
  /** When the process began. */
  startedMs: number;
  startedWallMs: number;
  clock: Clock;
  log: Logger;
  reload(): Promise<void>;
  /** The state folder was marked: nothing starts with it until `setup`. */
  onDecommissioned(): void;
}

/** A store that has answered nothing for so long is stuck, not slow. */
const STORE_PATIENCE_MS = 120_000;
/** What a part has at a stop to close what it breaks off. */
const BREAK_OFF_MS = 5_000;

export class RunningAgent {
  readonly #options: RunningAgentOptions;
  #configuration: Configuration;
  readonly #events: EventsFlow;
  readonly #addresses: PostAddresses;
  readonly #accepted: AcceptedObjects;
  readonly #uplink: Uplink;
  readonly #sources: SourcesFlow;
  readonly #live: LiveFlow;
  #ops: OpsServer | undefined;
  #control: ControlServer | undefined;
  readonly #rates: Rates;
  readonly #quota: Quota;
  #ingestedValues = 0;
  /** Everything stands, and the first login was tried. */
  isReady = false;

  constructor(options: RunningAgentOptions) {
    const { buffer, clock, configuration, log, metrics, platform } = options;
    const { settings, tags, reactions } = configuration;
    const { client, session } = platform;
    this.#options = options;
    this.#configuration = configuration;
    this.#rates = new Rates(options.startedMs);
    this.#quota = new Quota(client, clock);
    this.#events = new EventsFlow({
      settings,
      tags,
      reactions,
      buffer,
      client,
      sessionUser: () => session.userId,
      sendToPublic: (url) => platform.senderTo(url),
      clock,
      log,
      metrics,
      redactor: platform.redactor,
      certificates: platform.certificates,
      identityConflicts: platform.identityConflicts,
      now: () => eventTime(clock, client.platformClock, this.isReady),
    });
    this.#addresses = new PostAddresses(buffer.catalogue, settings.valuesPath, tags.tags.values());
    const onLiveDelivered = (waitedMs: number) => this.#live.sampler.delivered(waitedMs);
    const flows = { settings, clock, log, platform, metrics, onLiveDelivered };
    const { outgoing } = buffer;
    const { holds } = this.#events;
    this.#accepted = new AcceptedObjects(buffer.objects, clock);
    const onAccepted = (asset: number, instrumentation?: number) => this.#accepted.note(asset, instrumentation);
    this.#uplink = makeUplink({ ...flows, onAccepted, buffer: outgoing, access: holds, addresses: this.#addresses });
    this.#uplink.onBack((unavailableMs) => {
      platform.budget.outageOver(unavailableMs);
      this.#events.catchUp.readSoon();
    });
    session.onChange(() => {
      if (session.snapshot().state !== 'valid') return;
      this.#uplink.tryNow();
      this.#events.registration.signedIn();
    });
    this.#sources = new SourcesFlow({
      settings,
      tags,
      kinds: SOURCE_KINDS,
      buffer,
      certificates: platform.certificates,
      countIngested: (source, values) => {
        this.#ingestedValues += values;
        metrics.ingested.inc({ source }, values);
      },
      countAhead: (source, values) => metrics.ahead.inc({ source }, values),
      brokers: this.#events.brokers,
      clock,
      log,
    });
    this.#live = this.#makeLive();
  }

  /** The signal ends posting at once. */
  async start(signal: AbortSignal): Promise<void> {
    await this.#events.start();
    await this.#uplink.start(signal);
    await this.#sources.start();
    await this.#openOperations();
  }

  async #openOperations(): Promise<void> {
    const { settings } = this.#configuration;
    const { buffer, clock, controlPath, log, metrics, onDecommissioned, platform, recentLines } = this.#options;
    if (settings.opsListen) {
      const { page, live, doctor, sampler } = this.#live;
      sampler.start();
      const sources: OpsSources = {
        page,
        live,
        doctor,
        health: () => this.#health(),
        readiness: () => this.#readiness(),
        status: () => this.status(),
        metrics: async () => {
          const registry = await metrics.registry();
          return { contentType: registry.contentType, text: await registry.metrics() };
        },
      };
      const tls = certificateFiles(settings, 'ops', platform.certificates);
      this.#ops = new OpsServer(sources, { address: settings.opsListen, tls, access: settings, clock, log });
      await this.#ops.start();
      log.info({ event: 'ops.listening', address: this.#ops.address }, 'listening for operators');
    }
    const routes = operatorRoutes({
      settings,
      buffer,
      events: this.#events,
      sources: this.#sources,
      session: platform.session,
      tags: () => this.#configuration.tags.tags,
      tryPosting: () => this.#uplink.tryNowOnRequest(),
      withdrawn: (series) => this.#uplink.withdrawn(series),
      status: async () => {
        await Promise.all([this.#quota.refresh(), this.#options.files.look()]);
        return this.status();
      },
      reload: () => this.#options.reload().then(() => this.#options.files.report(this.#configuration.settings)),
      diagnose: () => this.#diagnose(),
      leave: () => onDecommissioned(),
      recentLines,
      clock,
      log,
    });
    this.#control = new ControlServer(routes, { path: controlPath, clock, log });
    await this.#control.start();
  }

  #makeLive(): LiveFlow {
    const { buffer, clock, log, metrics, platform, recentLines, startedWallMs, version } = this.#options;
    const parts = liveParts({
      buffer,
      events: this.#events,
      metrics,
      sources: this.#sources,
      uplink: this.#uplink,
      tags: () => this.#configuration.tags,
      valuesPath: () => this.#configuration.settings.valuesPath,
    });
    return new LiveFlow({
      ...parts,
      version,
      startedWallMs,
      status: () => this.status(),
      refreshQuota: () => this.#quota.refresh(),
      standing: () => ({
        ...this.#counters(),
        backlog: buffer.bufferedValues,
        requests: platform.budget.minuteUsed,
        isOut: !['online', 'resting'].includes(this.state()),
      }),
      recentLines,
      runDoctor: () => runDoctor(this.#options.directory, this.#options.environment),
      clock,
      log,
    });
  }

  /** What is in force. */
  get configuration(): Configuration {
    return this.#configuration;
  }

  /** Puts a configuration in force, part by part; gives the keys that wait for a restart. */
  async apply(next: Configuration): Promise<KeyName[]> {
    const { tags, reactions } = next;
    const { buffer, log, platform } = this.#options;
    const { settings, needRestart } = reloadedSettings(this.#configuration.settings, next.settings);
    this.#configuration = { tags, reactions, settings };
    log.level = settings.logLevel;
    platform.reload(settings);
    await buffer.reload(settings);
    if (this.#addresses.replace(settings.valuesPath, tags.tags.values())) this.#uplink.addressesChanged();
    this.#uplink.setPace(uplinkPace(settings));
    await this.#events.reload(tags, reactions);
    this.#ops?.setAccess(settings);
    await this.#sources.reload(tags, settings);
    return needRestart;
  }

  /** Nothing more is taken in; what was is committed, posts under way and reactions that run may end. */
  async stopFlows(step: StopStep, leftMs: () => number): Promise<void> {
    await step('sources', this.#sources.stop(), leftMs());
    const budgetMs = leftMs();
    const withinMs = budgetMs + BREAK_OFF_MS;
    await Promise.all([
      step('uplink', this.#uplink.stop(budgetMs), withinMs),
      step('events', this.#events.stop(budgetMs), withinMs),
    ]);
    // After the last post.
    await step('accepted', this.#accepted.stop(), BREAK_OFF_MS);
  }

  async stopOperations(step: StopStep): Promise<void> {
    this.#live.sampler.stop();
    await step('control', this.#control?.stop(), BREAK_OFF_MS);
    await step('ops', this.#ops?.stop(), BREAK_OFF_MS);
  }

  status() {
    const { buffer, clock, files, platform, startedMs, startedWallMs, version } = this.#options;
    const { settings } = this.#configuration;
    return statusReport({
      version,
      clock,
      startedWallMs,
      startedMonotonicMs: startedMs,
      tags: () => this.#configuration.tags,
      stateDir: settings.stateDir,
      platformUrl: settings.platformUrl,
      maxBytes: settings.bufferMaxBytes,
      webhookUrl: settings.webhookUrl,
      configuration: files.report(settings),
      buffer,
      session: platform.session,
      budget: platform.budget,
      uplink: this.#uplink,
      events: this.#events,
      rates: this.#rates.at(clock.monotonicMs(), this.#counters()),
      quota: this.#quota.known,
      sources: this.#sources.reports(),
      certificates: this.#certificates(),
      identityConflicts: platform.identityConflicts.list(),
      addresses: () => ({ ingest: this.#sources.listening, ops: this.#ops?.address, control: this.#control?.path }),
    });
  }

  figures() {
    const { buffer, files, platform, startedWallMs, version } = this.#options;
    return metricFigures({
      version,
      startedWallMs,
      settings: this.#configuration.settings,
      configuration: files.report(this.#configuration.settings),
      filesRefusedSinceSeconds: files.refusedSinceSeconds,
      buffer,
      session: platform.session,
      budget: platform.budget,
      uplink: this.#uplink,
      events: this.#events,
      quota: this.#quota.known,
      sources: this.#sources.reports(),
      certificates: this.#certificates(),
      identityConflicts: platform.identityConflicts.list(),
    });
  }

  /** In one word. */
  state(): string {
    const { buffer, platform } = this.#options;
    return overallState({ session: platform.session, uplink: this.#uplink, buffer, budget: platform.budget });
  }

  /** What the service manager shows. */
  statusLine(): string {
    const { buffer, clock, files } = this.#options;
    const { deliveredPerMinute } = this.#rates.at(clock.monotonicMs(), this.#counters());
    return `${statusLine(this.state(), deliveredPerMinute, buffer.facts.segmentValues)}${files.statusWords}`;
  }

  /** For the rates that `status` shows; called now and then. */
  sampleRates(): void {
    this.#rates.sample(this.#options.clock.monotonicMs(), this.#counters());
  }

  /** Whether everything still turns, as the watchdog asks. */
  isAlive(): boolean {
    const { buffer, clock } = this.#options;
    const nowMs = clock.monotonicMs();
    const isStoreAlive = buffer.isAlive(nowMs, STORE_PATIENCE_MS);
    return isStoreAlive && this.#uplink.isAlive(nowMs) && this.#events.runner.isAlive(nowMs, STORE_PATIENCE_MS);
  }

  #counters() {
    return { ingested: this.#ingestedValues, delivered: this.#uplink.deliveredValues };
  }

  #diagnose() {
    const { clock, platform } = this.#options;
    const { settings, tags } = this.#configuration;
    const { clientApplication: application, requestsPerMinute } = settings;
    const pathOf = (asset: number) => this.#pathOf(asset);
    const { client } = platform;
    return diagnosePlatform({ client, clock, application, ...objectsOfTags(tags), requestsPerMinute, pathOf });
  }

  #pathOf(asset: number): string {
    const { settings, tags } = this.#configuration;
    const ofAsset = [...tags.tags.values()].filter((tag) => tag.asset === asset);
    return fillValuesPath(settings.valuesPath, asset, ofAsset.find((tag) => tag.instrumentation)?.instrumentation);
  }

  #certificates() {
    return certificatesInUse(this.#options.platform.certificates, this.#sources.reports());
  }

  #health() {
    const { buffer, clock, files, platform } = this.#options;
    const { problems } = buffer;
    const { failureWatch, registration, silentTargets } = this.#events;
    const notes = [
      ...files.notes,
      ...sourceNotes(this.#sources.reports()),
      ...conflictNotes(platform.identityConflicts.list()),
      ...certificateNotes(this.#certificates(), clock.wallMs()),
      ...silentTargetNotes(silentTargets),
      ...disabledNotes(registration.disabledBy, registration.current()?.webhook),
      ...(registration.disabledBy === undefined ? failureWatch.notes : []),
    ];
    return { ok: problems.length === 0, problems, notes, session: platform.sessionReport() };
  }

  #readiness() {
    const health = this.#health();
    return this.isReady ? health : { ...health, ok: false, problems: [...health.problems, 'the agent is starting'] };
  }
}
