/**
 * Subscription to server values. A notification is acknowledged when its values are on disk; until then the server
 * stores it. After a lost connection or a crash, the next session transfers the subscription (`#transfer`), requests
 * unacknowledged notifications again, and receives the values queued in the meantime.
 *
 *   open ──► transferred or created ──► items updated ──► notifications, until the session ends
 */
import {
  AttributeIds,
  DataChangeFilter,
  DataChangeNotification,
  DataChangeTrigger,
  DeadbandType,
  type MonitoredItemNotification,
  MonitoringMode,
  type NodeId,
  type NotificationMessage,
  StatusChangeNotification,
  type StatusCode,
  StatusCodes,
  TimestampsToReturn,
} from 'node-opcua-client';
import { discardedBetween, isBefore, nextOf } from './message-numbers.ts';
import { missingNamespace } from './namespaces.ts';
import type { Item, KeptItem, KeptSubscription, ReadValue } from './protocol.ts';
import { readingOf, valueIdOf } from './readings.ts';
import { OversizedMessage, type Session } from './session.ts';
import { isGood, statusText } from './status-codes.ts';

/** Values of one message. */
export interface Notified {
  sequence: number;
  values: ReadValue[];
}

export interface SubscriptionListener {
  /** The subscription was created, transferred or changed. */
  subscribed(subscription: Omit<KeptSubscription, 'stored'>, isNew: boolean): void;
  rejected(items: readonly RejectedItem[]): void;
  notified(message: Notified): void;
  /** Called with the number of messages that the server no longer stored. */
  lost(messages: number): void;
  /** Resolves when more values may be requested. */
  ready(): Promise<void>;
  /** Rejects when the session ends. */
  pause(ms: number): Promise<void>;
}

const MIN_PUBLISHING_MS = 100;
const MAX_PUBLISHING_MS = 1_000;
/** Interval between keep-alive messages. */
const KEEP_ALIVE_MS = 5_000;
/** Requested subscription lifetime without a client, long enough for a gateway outage. */
const LIFETIME_MS = 3_600_000;
/** Requested lifetime if the subscription cannot be transferred. */
const SHORT_LIFETIME_MS = 60_000;
const MAX_VALUES_OF_MESSAGE = 1_000;
/** Number of Publish requests queued on the server. */
const PUBLISH_REQUESTS = 2;
const RETRY_REJECTED_MS = 60_000;
/** Number of lost messages after which no more missing messages are requested. */
const MAX_LOST = 1_000;
const SERVER_START = 'i=2257';

type Handles = Map<number, { key: string; monitoredItem: number; items: readonly number[] }>;

type RejectedItem = readonly [item: number, why: string];

/** Item on this server, and the indices of equal items in the task. */
interface ResolvedItem {
  item: Item;
  nodeId: NodeId;
  places: number[];
}

export class Subscription {
  readonly #session: Session;
  readonly #listener: SubscriptionListener;
  readonly #items: readonly Item[];
  /** Items by the settings with which the server monitors them. */
  #wanted = new Map<string, ResolvedItem>();
  /** Items whose namespace the server does not have. */
  #unknown: RejectedItem[] = [];
  readonly #handles: Handles = new Map();
  readonly #acknowledged: number[] = [];
  /** Sequence number of the latest processed message. */
  #sequence: number | undefined;
  #id = 0;
  #serverStartMs = 0;
  #nextHandle = 1;
  #publishTimeoutMs = 0;
  /** Messages are processed one at a time. */
  #turn: Promise<void> = Promise.resolve();
  #hasRejected = false;

  constructor(session: Session, items: readonly Item[], listener: SubscriptionListener) {
    this.#session = session;
    this.#listener = listener;
    this.#items = items;
  }

  /**
   * Transfers `kept`, or creates a subscription. `received`: sequence number of the latest message that the agent
   * received; messages after `kept.stored` are acknowledged when they are on disk. `mayTransfer`: whether the server
   * allows another session to take over the subscription.
   */
  async open(kept: KeptSubscription | undefined, received: number | undefined, mayTransfer: boolean): Promise<void> {
    this.#serverStartMs = await this.#readServerStart();
    this.#resolveItems();
    const isTransferred =
      kept !== undefined && kept.serverStartMs === this.#serverStartMs && (await this.#transfer(kept, received));
    if (!isTransferred) await this.#create(mayTransfer ? LIFETIME_MS : SHORT_LIFETIME_MS);
    await this.#updateItems();
    this.#reportSubscription(!isTransferred);
  }

  get id(): number {
    return this.#id;
  }

  /** Resolves the node IDs of the items. Items whose namespace the server does not have are rejected. */
  #resolveItems(): void {
    const { namespaces } = this.#session;
    this.#wanted = new Map();
    this.#unknown = [];
    for (const [place, item] of this.#items.entries()) {
      const nodeId = namespaces.nodeIdOf(item.node);
      if (nodeId === undefined) {
        this.#unknown.push([place, missingNamespace(item.node)]);
        continue;
      }
      const key = keyOf(item, nodeId);
      const known = this.#wanted.get(key);
      if (known) known.places.push(place);
      else this.#wanted.set(key, { item, nodeId, places: [place] });
    }
  }

  #reportSubscription(isNew: boolean): void {
    const items = [...this.#handles].map(([handle, { key, monitoredItem }]): KeptItem => [key, handle, monitoredItem]);
    this.#listener.subscribed({ id: this.#id, serverStartMs: this.#serverStartMs, items }, isNew);
  }

  /** Marks a message as on disk, so that it can be acknowledged. */
  stored(sequence: number): void {
    this.#acknowledged.push(sequence);
  }

  /** Receives notifications until the session ends, then rejects. */
  async run(): Promise<never> {
    const fetching = Array.from({ length: PUBLISH_REQUESTS }, () => this.#fetch());
    const all = [this.#session.broken, this.#retryRejected(), ...fetching];
    // The other promises reject later with the same cause.
    for (const one of all) one.catch(() => {});
    return await Promise.race(all);
  }

  /** Retries rejected nodes, because servers may load their models after startup. */
  async #retryRejected(): Promise<never> {
    for (;;) {
      await this.#listener.pause(RETRY_REJECTED_MS);
      if (!this.#hasRejected) continue;
      await this.#session.readNamespaces();
      this.#resolveItems();
      for (const handle of this.#handles.values()) handle.items = this.#wanted.get(handle.key)?.places ?? [];
      await this.#updateItems();
      this.#reportSubscription(false);
    }
  }

  async #fetch(): Promise<never> {
    for (;;) {
      await this.#listener.ready();
      const acknowledged = this.#acknowledged
        .splice(0)
        .map((sequenceNumber) => ({ subscriptionId: this.#id, sequenceNumber }));
      const { subscriptionId, notificationMessage } = await this.#session.publish(acknowledged, this.#publishTimeoutMs);
      if (subscriptionId !== this.#id) continue;
      this.#turn = this.#turn.then(() => this.#process(notificationMessage));
      await this.#turn;
    }
  }

  /** Requests missing messages first, to preserve the order of a series. */
  async #process(message: NotificationMessage): Promise<void> {
    const { sequenceNumber, notificationData } = message;
    // A keep-alive contains the number of the next message.
    if (!notificationData || notificationData.length === 0) return;
    if (this.#sequence !== undefined) await this.#fetchMissing(nextOf(this.#sequence), sequenceNumber);
    await this.#report(message);
  }

  async #fetchMissing(from: number, until: number): Promise<void> {
    let lost = 0;
    for (let sequence = from; isBefore(sequence, until) && lost < MAX_LOST; sequence = nextOf(sequence)) {
      if (await this.#republish(sequence)) continue;
      lost++;
      this.#listener.lost(1);
    }
    if (lost > 0) await this.#session.resendData(this.#id);
  }

  async #republish(sequence: number): Promise<boolean> {
    const response = await this.#session.republish(this.#id, sequence).catch((error: unknown) => {
      if (error instanceof OversizedMessage) throw error;
    });
    if (!response) return false;
    await this.#report(response.notificationMessage);
    return true;
  }

  async #report({ sequenceNumber, notificationData }: NotificationMessage): Promise<void> {
    this.#sequence = sequenceNumber;
    const changes: MonitoredItemNotification[] = [];
    for (const data of notificationData ?? []) {
      if (data instanceof StatusChangeNotification && isGood(data.status)) continue;
      if (data instanceof StatusChangeNotification)
        throw new Error(`the subscription was closed (${data.status.name})`);
      if (data instanceof DataChangeNotification) changes.push(...(data.monitoredItems ?? []));
    }
    await this.#session.decodeStructures(changes.map(({ value }) => value));
    const values: ReadValue[] = [];
    for (const { clientHandle, value } of changes) {
      for (const place of this.#handles.get(clientHandle)?.items ?? [])
        values.push([place, ...readingOf(value, this.#items[place]!)]);
    }
    this.#listener.notified({ sequence: sequenceNumber, values });
  }

  async #readServerStart(): Promise<number> {
    const { value } = await this.#session.raw.read({ nodeId: SERVER_START, attributeId: AttributeIds.Value });
    return value.value instanceof Date ? value.value.getTime() : 0;
  }

  async #transfer({ id, items, stored }: KeptSubscription, received = stored): Promise<boolean> {
    const { results } = await this.#session.transfer(id).catch(() => ({ results: null }));
    const [result] = results ?? [];
    if (!result || !isGood(result.statusCode)) return false;
    this.#id = id;
    this.#publishTimeoutMs = publishTimeoutMs(MAX_PUBLISHING_MS, KEEP_ALIVE_MS / MIN_PUBLISHING_MS);
    for (const [key, handle, monitoredItem] of items) {
      this.#handles.set(handle, { key, monitoredItem, items: this.#wanted.get(key)?.places ?? [] });
      this.#nextHandle = Math.max(this.#nextHandle, handle + 1);
    }
    const available = [...(result.availableSequenceNumbers ?? [])].sort((one, other) =>
      isBefore(one, other) ? -1 : 1,
    );
    const discarded = received === undefined ? 0 : discardedBetween(received, available, 2 * PUBLISH_REQUESTS);
    if (discarded > 0) this.#listener.lost(discarded);
    for (const sequence of available) {
      const isBeyond = (other: number | undefined) => other === undefined || isBefore(other, sequence);
      if (!isBeyond(stored)) this.stored(sequence);
      else if (!isBeyond(received)) continue;
      else if (!(await this.#republish(sequence))) this.#listener.lost(1);
    }
    // A server reports each transfer to the previous session in a message, so there may be a gap before the next
    // number.
    this.#sequence = undefined;
    if (discarded > 0) await this.#session.resendData(id);
    return true;
  }

  async #create(lifetimeMs: number): Promise<void> {
    const fastest = Math.min(...[...this.#wanted.values()].map(({ item }) => item.samplingMs));
    const publishingMs = Math.min(Math.max(fastest, MIN_PUBLISHING_MS), MAX_PUBLISHING_MS);
    const keepAlives = Math.ceil(KEEP_ALIVE_MS / publishingMs);
    const created = await this.#session.raw.createSubscription({
      requestedPublishingInterval: publishingMs,
      requestedMaxKeepAliveCount: keepAlives,
      requestedLifetimeCount: Math.ceil(lifetimeMs / publishingMs),
      maxNotificationsPerPublish: MAX_VALUES_OF_MESSAGE,
      publishingEnabled: true,
      priority: 0,
    });
    this.#id = created.subscriptionId;
    this.#publishTimeoutMs = publishTimeoutMs(created.revisedPublishingInterval, created.revisedMaxKeepAliveCount);
    this.#handles.clear();
    this.#sequence = undefined;
  }

  /** Deletes unused items and adds new ones. Other items keep their queues. */
  async #updateItems(): Promise<void> {
    const existing = new Set([...this.#handles.values()].map(({ key }) => key));
    const unused = [...this.#handles].filter(([, { items }]) => items.length === 0);
    await this.#session.inBatches(unused, async (some) => {
      const monitoredItemIds = some.map(([, { monitoredItem }]) => monitoredItem);
      await this.#session.raw.deleteMonitoredItems({ subscriptionId: this.#id, monitoredItemIds });
      for (const [handle] of some) this.#handles.delete(handle);
    });
    const rejected = [...this.#unknown];
    const added = [...this.#wanted].filter(([key]) => !existing.has(key)).map(([key, item]) => ({ key, ...item }));
    await this.#session.inBatches(added, async (some) => {
      const results = await this.#monitor(some);
      for (const [at, { key, places }] of some.entries()) {
        const result = results[at]!;
        if ('why' in result) rejected.push(...places.map((place) => [place, result.why] as const));
        else this.#handles.set(result.handle, { key, monitoredItem: result.monitoredItem, items: places });
      }
    });
    this.#hasRejected = rejected.length > 0;
    this.#listener.rejected(rejected);
  }

  /** Omits a filter that the server does not support for a value; the agent applies the dead band itself. */
  async #monitor(items: readonly ResolvedItem[]): Promise<Monitored[]> {
    const first = await this.#createItems(items, true);
    const unfiltered = [...first.entries()]
      .filter(([, one]) => 'isFilterProblem' in one && one.isFilterProblem)
      .map(([at]) => at);
    if (unfiltered.length === 0) return first;
    const second = await this.#createItems(
      unfiltered.map((at) => items[at]!),
      false,
    );
    for (const [place, at] of unfiltered.entries()) first[at] = second[place]!;
    return first;
  }

  async #createItems(items: readonly ResolvedItem[], withFilter: boolean): Promise<Monitored[]> {
    const handles = items.map(() => this.#nextHandle++);
    const itemsToCreate = items.map(({ item, nodeId }, at) => ({
      itemToMonitor: valueIdOf(nodeId, item),
      monitoringMode: MonitoringMode.Reporting,
      requestedParameters: {
        clientHandle: handles[at]!,
        samplingInterval: item.samplingMs,
        queueSize: item.queueSize,
        discardOldest: true,
        filter: withFilter ? filterOf(item) : null,
      },
    }));
    const { results } = await this.#session.raw.createMonitoredItems({
      subscriptionId: this.#id,
      timestampsToReturn: TimestampsToReturn.Both,
      itemsToCreate,
    });
    return items.map((_, at) => {
      const { statusCode, monitoredItemId } = results?.[at] ?? {};
      if (statusCode && isGood(statusCode) && monitoredItemId !== undefined)
        return { handle: handles[at]!, monitoredItem: monitoredItemId };
      return {
        why: statusCode ? statusText(statusCode) : 'no response',
        isFilterProblem: withFilter && isFilterError(statusCode),
      };
    });
  }
}

/** Returns the key of the settings with which the server monitors an item. */
function keyOf({ index, samplingMs, queueSize, trigger, deadband }: Item, nodeId: NodeId): string {
  return [nodeId.toString(), index ?? '', samplingMs, queueSize, trigger, deadband ?? ''].join(' ');
}

type Monitored = { handle: number; monitoredItem: number } | { why: string; isFilterProblem: boolean };

function isFilterError(code: StatusCode | undefined): boolean {
  return [
    StatusCodes.BadMonitoredItemFilterUnsupported,
    StatusCodes.BadMonitoredItemFilterInvalid,
    StatusCodes.BadFilterNotAllowed,
    StatusCodes.BadDeadbandFilterInvalid,
  ].some((one) => one === code);
}

const TRIGGERS = {
  status: DataChangeTrigger.Status,
  value: DataChangeTrigger.StatusValue,
  timestamp: DataChangeTrigger.StatusValueTimestamp,
};

/** Returns null if the filter equals the server default. */
function filterOf({ trigger, deadband }: Item): DataChangeFilter | null {
  if (trigger === 'value' && deadband === undefined) return null;
  return new DataChangeFilter({
    trigger: TRIGGERS[trigger],
    deadbandType: deadband === undefined ? DeadbandType.None : DeadbandType.Absolute,
    deadbandValue: deadband ?? 0,
  });
}

/** Returns the response timeout for a Publish request; the server queues several of them. */
function publishTimeoutMs(publishingMs: number, keepAlives: number): number {
  return Math.ceil(publishingMs * keepAlives * (PUBLISH_REQUESTS + 1) + 15_000);
}
