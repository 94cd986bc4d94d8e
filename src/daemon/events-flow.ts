/** Events from the platform: listener and catch-up into the inbox, from there to holds and reactions. */
import { randomUUID } from 'node:crypto';
import { join } from 'node:path';
import { AccessFollower } from '../access/follower.ts';
import { Holds } from '../access/holds.ts';
import { type OwnUser, ownAccessOnly } from '../access/own-access.ts';
import type { Certificates } from '../base/certificates.ts';
import type { Clock } from '../base/clock.ts';
import type { IdentityConflicts } from '../base/identity-conflicts.ts';
import { reactionBudgetBytes, webhookBudgetBytes } from '../base/inbound/memory-budget.ts';
import type { Logger } from '../base/logger.ts';
import { memoryLimitBytes } from '../base/memory-limit.ts';
import { endOrphans } from '../base/programs/family.ts';
import type { Redactor } from '../base/redactor.ts';
import type { BrokerSpec } from '../broker/broker-spec.ts';
import { Brokers } from '../broker/brokers.ts';
import type { NatsSpec } from '../broker/nats/nats-spec.ts';
import type { SeriesCatalogue } from '../buffer/series.ts';
import type { Reaction } from '../config/reactions.ts';
import type { Settings } from '../config/settings.ts';
import type { Source, Tag, Tags } from '../config/tags.ts';
import type { Metrics } from '../ops/metrics.ts';
import type { PlatformClient } from '../platform/client.ts';
import type { Journal } from '../reactions/journal.ts';
import { createPerformer } from '../reactions/perform.ts';
import { RecentOutputs } from '../reactions/recent-outputs.ts';
import type { JudgingTime } from '../reactions/rules.ts';
import { ReactionRunner } from '../reactions/runner.ts';
import { tagNames } from '../reactions/tag-names.ts';
import type { SilentTarget } from '../reactions/targets.ts';
import { SOURCE_KINDS } from '../sources/kinds.ts';
import { gatewayName } from '../store/gateway-identity.ts';
import type { Remote } from '../store/store-api.ts';
import { CatchUp } from '../webhook/catch-up.ts';
import { Deliveries } from '../webhook/deliveries.ts';
import { parsed } from '../webhook/event-feed.ts';
import { type FailingWebhook, FailureWatch } from '../webhook/failure-watch.ts';
import { type Filters, filtersFor, narrowedTypes } from '../webhook/filters.ts';
import { ForeignSecret } from '../webhook/foreign-secret.ts';
import type { Inbox } from '../webhook/inbox.ts';
import { pathOf, WebhookListener } from '../webhook/listener.ts';
import { WebhookRegistration } from '../webhook/registration.ts';
import { RegistrationFile, WEBHOOK_FILE } from '../webhook/registration-file.ts';
import {
  type SelfTestLine,
  type SelfTestTarget,
  type SendTest,
  sendToListener,
  testWebhook,
} from '../webhook/self-test.ts';
import type { BufferFlow } from './buffer-flow.ts';
import { certificateFiles } from './certificate-files.ts';
import { RelayFlow } from './relay-flow.ts';

export interface EventsFlowOptions {
  settings: Settings;
  /** Where the certificate of the listener is noted. */
  certificates: Certificates;
  /** Where signs of another agent with this identity are reported. */
  identityConflicts: IdentityConflicts;
  tags: Tags;
  reactions: readonly Reaction[];
  buffer: BufferFlow;
  client: PlatformClient;
  /** The user that the token response reported. */
  sessionUser(): number | undefined;
  /** Posts to WEBHOOK_URL as the platform would, for the self-test. */
  redactor: Redactor;
  sendToPublic(url: string): SendTest;
  clock: Clock;
  log: Logger;
  metrics: Metrics;
  /** What the ages of events are judged by: see `eventNowMs`. */
  now(): JudgingTime | undefined;
}

/** Retention of the inbox is worked off in small steps between other calls. */
const PRUNE_EVERY_MS = 60_000;
/** Share of the request budget that probes of held assets may take. */
const PROBE_SHARE = 10;

/** What this technical user may not see now, of the series of a buffer that is open. */
export function makeHolds(parts: {
  settings: Settings;
  tags: Iterable<Tag>;
  buffer: BufferFlow;
  clock: Clock;
  log: Logger;
}): Holds {
  const { settings, tags, buffer, clock, log } = parts;
  return new Holds({
    store: buffer.holds,
    tags,
    series: buffer.catalogue satisfies SeriesCatalogue,
    clock,
    logger: log,
    probesPerMinute: () =>
      settings.requestsPerMinute > 0 ? settings.requestsPerMinute / PROBE_SHARE : Number.POSITIVE_INFINITY,
  });
}

export class EventsFlow {
  readonly #options: EventsFlowOptions;
  readonly #inbox: Remote<Inbox>;
  readonly #instance: string;
  readonly #selfTestMark = randomUUID();
  readonly holds: Holds;
  readonly brokers: Brokers;
  readonly registration: WebhookRegistration;
  readonly catchUp: CatchUp;
  readonly deliveries: Deliveries;
  readonly failureWatch: FailureWatch;
  readonly runner: ReactionRunner;
  readonly outputs = new RecentOutputs();
  readonly #follower: AccessFollower;
  readonly #relay: RelayFlow;
  readonly #stopping = new AbortController();
  #listener: WebhookListener | undefined;
  #cancelPrune: () => void = () => {};
  /** Of the events found damaged since the start. */
  #saidDamaged = 0;

  constructor(options: EventsFlowOptions) {
    const { settings, tags, reactions, buffer, client, clock, identityConflicts, log, metrics, redactor } = options;
    this.#options = options;
    this.#inbox = buffer.inbox;
    this.#instance = gatewayName(settings.stateDir, 'reactions');
    const received = (eventType: string) => metrics.eventsReceived.inc({ event_type: eventType });
    const inserted = () => {
      this.#relay.wake();
      this.#follower.wake();
      this.runner.wake();
    };
    this.holds = makeHolds({ settings, tags: tags.tags.values(), buffer, clock, log });
    const { webhookFrom } = settings;
    const held = ownAccessOnly(this.holds, { user: () => this.ownUser, isRelayed: webhookFrom !== undefined, log });
    const feed = {
      ofAccess: async (limit: number, afterId: number) => (await this.#inbox.ofAccess(limit, afterId)).map(parsed),
    };
    this.#follower = new AccessFollower({ feed, holds: held, clock, logger: log });
    this.brokers = new Brokers({
      clock,
      logger: log,
      platformCaFile: settings.platformCa,
      clientId: (name) => gatewayName(settings.stateDir, name),
      nameTaken: (source) => identityConflicts.report('broker', source),
    });
    this.registration = new WebhookRegistration(
      {
        url: settings.webhookUrl,
        secret: settings.webhookSecret,
        eventTypes: settings.webhookEvents,
        properties: this.#filters(reactions),
        application: settings.clientApplication,
        reenable: settings.webhookReenable,
      },
      {
        platform: client,
        file: new RegistrationFile(join(settings.stateDir, WEBHOOK_FILE)),
        clock,
        log,
        redactor,
        registered: () => {
          this.catchUp.nowRegistered();
          this.#relay.wake();
        },
      },
    );
    this.catchUp = new CatchUp(
      { pollMs: settings.webhookPollMs, listening: settings.webhookListen !== undefined },
      {
        platform: client,
        inbox: this.#inbox,
        registered: () => this.registration.current(),
        lost: () => this.registration.checkSoon(),
        clock,
        log,
        received,
        inserted,
        listed: (identities) => foreignSecret.listed(identities),
      },
    );
    const foreignSecret = new ForeignSecret({
      clock,
      readSoon: () => this.catchUp.readSoon(),
      found: () => identityConflicts.report('webhook'),
      over: () => identityConflicts.end('webhook'),
    });
    const registered = () => this.registration.current();
    this.deliveries = new Deliveries({ platform: client, registered, clock });
    this.failureWatch = new FailureWatch({ platform: client, registered, clock, log });
    this.runner = new ReactionRunner({
      journal: journalOf(this.#inbox),
      reactions,
      tagOf: tagNames(tags.tags.values()),
      perform: createPerformer({
        outputs: this.outputs,
        clock,
        logger: log,
        instance: this.#instance,
        publish: (broker, topic, payload, publishing) => this.brokers.publish(broker, topic, payload, publishing),
      }),
      clock,
      logger: log,
      now: () => options.now(),
      memoryBytes: reactionBudgetBytes(memoryLimitBytes()),
      onOutcome: (name, outcome) => metrics.reactions.inc({ name, outcome }),
    });
    this.#relay = new RelayFlow({
      settings,
      tags,
      reactions,
      brokers: this.brokers,
      inbox: this.#inbox,
      secrets: () => this.registration.secrets(),
      ownUser: () => this.ownUser,
      inserted,
      clock,
      log,
      metrics,
    });
    if (settings.webhookListen && !webhookFrom) {
      this.#listener = new WebhookListener(
        {
          listen: settings.webhookListen,
          path: pathOf(settings.webhookUrl),
          acceptSha1: settings.webhookAcceptSha1,
          keepsSignatures: settings.webhookTo !== undefined,
          tls: certificateFiles(settings, 'webhook', options.certificates),
          limits: { bytesUnderWay: webhookBudgetBytes(memoryLimitBytes()) },
        },
        {
          insertMany: (events) => this.#inbox.insertMany(events),
          secrets: () => this.registration.secrets(),
          clock,
          log,
          received,
          rejected: (reason) => metrics.eventsRejected.inc({ reason }),
          inserted,
          foreignSecret,
          isSelfTest: (mark) => mark === this.#selfTestMark,
        },
      );
    }
  }

  /** Holds first: a post of something that is held must not go out because the table was not read yet. */
  async start(): Promise<void> {
    await this.holds.start();
    await this.#followBrokers(this.#options.tags);
    // The secret is read before the listener opens: a delivery must not be refused for that.
    await this.registration.load();
    await this.#relay.start();
    await this.#listener?.start();
    // What a killed daemon left running is ended before its reaction runs again.
    await endOrphans(this.#instance);
    this.#follower.start();
    this.runner.start();
    await this.registration.start(this.#stopping.signal);
    this.catchUp.start(this.#stopping.signal);
    this.failureWatch.start();
    this.#prune();
  }

  /** By TECHNICAL_USER_ID, else by the token response; `undefined` where neither is known. */
  get ownUser(): OwnUser | undefined {
    const { settings, sessionUser } = this.#options;
    if (settings.technicalUserId !== undefined) return { id: settings.technicalUserId, from: 'setting' };
    const id = sessionUser();
    return id === undefined ? undefined : { id, from: 'token' };
  }

  #filters(reactions: readonly Reaction[]): Filters {
    const { log, settings } = this.#options;
    const { webhookEvents } = settings;
    const explicit = settings.webhookProperties ?? {};
    for (const type of narrowedTypes(reactions, webhookEvents, explicit)) {
      const hint = `Add the names that the reactions need, or write ${type}=* in WEBHOOK_PROPERTIES.`;
      const fields = { event: 'webhook.filter_narrow', eventType: type, hint };
      log.warn(fields, 'WEBHOOK_PROPERTIES leaves out changes that a reaction needs');
    }
    return filtersFor(reactions, webhookEvents, explicit);
  }

  async #followBrokers(tags: Tags): Promise<string[]> {
    const kinds = SOURCE_KINDS.filter(({ publishes }) => publishes).map(({ kind }) => kind);
    const sources = [...tags.sources.values()].filter((source) => kinds.includes(source.kind));
    return this.brokers.set(sources as Source<BrokerSpec | NatsSpec>[]);
  }

  /** New rules, tags and brokers. Gives the brokers whose subscriptions have to be made anew. */
  async reload(tags: Tags, reactions: readonly Reaction[]): Promise<string[]> {
    this.runner.setReactions(reactions, tagNames(tags.tags.values()));
    this.registration.setFilters(this.#filters(reactions));
    this.holds.setTags(tags.tags.values());
    const fresh = await this.#followBrokers(tags);
    this.#relay.reload(tags, reactions);
    return fresh;
  }

  get failingWebhook(): FailingWebhook | undefined {
    return this.failureWatch.failing;
  }

  get silentTargets(): readonly SilentTarget[] {
    return this.runner.silentTargets;
  }

  /** Where the listener is, for `status`; `undefined` where it is off. */
  get listening(): string | undefined {
    const address = this.#listener?.address();
    if (!address) return undefined;
    return typeof address === 'string' ? `unix:${address}` : `${address.address}:${address.port}`;
  }

  /** `webhook test`: the listener as it stands here, then through WEBHOOK_URL. */
  testWebhook(): Promise<SelfTestLine[]> {
    const { webhookUrl, webhookTlsCert } = this.#options.settings;
    const address = this.#listener?.address();
    const targets: SelfTestTarget[] = [];
    if (address) {
      const send = sendToListener(address, pathOf(webhookUrl), webhookTlsCert !== undefined);
      targets.push({ name: 'listener', address: this.listening ?? '', send });
    }
    if (webhookUrl) targets.push({ name: 'public', address: webhookUrl, send: this.#options.sendToPublic(webhookUrl) });
    return testWebhook(targets, this.registration.secrets()[0], this.#selfTestMark);
  }

  #prune(): void {
    this.#cancelPrune = this.#options.clock.after(PRUNE_EVERY_MS, () => {
      const pruned = this.#inbox.prune().then(() => this.#sayDamaged());
      void pruned.catch(() => {}).finally(() => this.#prune());
    });
  }

  async #sayDamaged(): Promise<void> {
    const { damaged } = await this.#inbox.stats();
    if (damaged <= this.#saidDamaged) return;
    this.#saidDamaged = damaged;
    const fields = { event: 'inbox.damaged', events: damaged };
    this.#options.log.error(
      fields,
      'events did not fit their checksums and do not run; the platform is asked for them again',
    );
  }

  /** Takes no more deliveries. */
  async stopListening(): Promise<void> {
    await this.#listener?.stop();
  }

  /** Lets reactions that run finish within the budget; the others run at the next start. */
  async stop(budgetMs: number): Promise<void> {
    this.#cancelPrune();
    this.#stopping.abort(new Error('the agent stops'));
    await Promise.all([
      this.#listener?.stop(),
      this.#relay.stop(),
      this.catchUp.stop(),
      this.failureWatch.stop(),
      this.registration.stop(),
      this.runner.stop(budgetMs),
      this.#follower.stop(),
    ]);
    await this.brokers.stop();
    await this.holds.stop();
  }
}

/** The inbox, with payloads that are parsed on demand. */
function journalOf(inbox: Remote<Inbox>): Journal {
  return {
    fresh: async (limit, afterId) => (await inbox.fresh(limit, afterId)).map(parsed),
    due: async (limit, afterId) => (await inbox.due(limit, afterId)).map(parsed),
    retried: async (limit, afterId) => (await inbox.retried(limit, afterId)).map(parsed),
    markRunning: (id) => inbox.markRunning(id),
    record: (id, progress, attempt) => inbox.record(id, progress, attempt),
    finish: (id, state, retryInMs) => inbox.finish(id, state, retryInMs),
    replay: (id) => inbox.replay(id),
    cooldown: (reaction, object) => inbox.cooldown(reaction, object),
    setCooldown: (reaction, object, restMs) => inbox.setCooldown(reaction, object, restMs),
  };
}
