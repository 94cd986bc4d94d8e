/**
 * Subscription to server values, used by one session. A notification is acknowledged when its values are on disk; until
 * then the server stores it. After a lost connection or a crash, the next session transfers the subscription, requests
 * unread notifications again, and receives the values queued in the meantime. A server that rejects the transfer gets a
 * new subscription, which begins with the current values.
 */
import { promisify } from 'node:util';
import * as ua from 'node-opcua-client';
import type { Clock } from '../base/clock.ts';
import { messageOf } from '../base/errors.ts';
import {
  type Item,
  type ItemProblem,
  type KeptSubscription,
  MAX_VALUES_PER_LINE,
  type MessageId,
  type MonitoredItem,
  type ReaderLine,
  type ReaderTask,
  type ReadValue,
} from './protocol.ts';
import { RESPONSE_MS, type Session } from './session.ts';
import { isGood, readingOf, statusText, valueIdOf } from './values.ts';

const MIN_PUBLISHING_MS = 100;
const MAX_PUBLISHING_MS = 1_000;
/** Interval between keep-alive messages. */
const KEEP_ALIVE_MS = 5_000;
/** Requested subscription lifetime without a client, long enough for a gateway outage. */
const LIFETIME_MS = 3_600_000;
/** Requested lifetime if the subscription cannot be transferred. */
const SHORT_LIFETIME_MS = 60_000;
const MAX_VALUES_OF_MESSAGE = 1_000;
/** Maximum number of values that are not on disk yet. */
const MAX_UNSTORED = 10_000;
/** Minimum number of messages that a server retains (OPC 10000-4, 5.14.1.1: two per Publish request). */
const MIN_RETAINED = 2;
const RETRY_REJECTED_MS = 60_000;
const SERVER = 'i=2253';
const SERVER_START = 'i=2257';
const RESEND_DATA = 'i=12873';
const TRIGGERS = {
  status: ua.DataChangeTrigger.Status,
  timestamp: ua.DataChangeTrigger.StatusValueTimestamp,
};
const VANISHED = /BadNodeId(Unknown|Invalid)/;

/** Item on this server, and the indices of equal items in the task. */
interface ResolvedItem {
  item: Item;
  nodeId: ua.NodeId;
  places: number[];
}

export class Subscription {
  readonly #session: Session;
  readonly #task: ReaderTask;
  readonly #send: (line: ReaderLine) => void;
  /** Whether the next session can transfer this subscription. */
  isKept = false;
  #id = 0;
  #serverStartMs = 0;
  #publishTimeoutMs = 0;
  #publishingMs = 0;
  /** Items by the settings with which the server monitors them. */
  readonly #wanted = new Map<string, ResolvedItem>();
  /** Monitored items by client handle. */
  readonly #monitored = new Map<number, MonitoredItem>();
  #nextHandle = 1;
  #rejected: ItemProblem[] = [];
  /** Items whose history this user is allowed to read. */
  #history: readonly number[] = [];
  /** Received messages that are not on disk, and those that are on disk and not acknowledged yet. */
  #unstored: { sequence: number; values: number }[] = [];
  #acknowledgements: number[] = [];
  /** Latest report of the items, as JSON. */
  #reported = '';
  #wake = Promise.withResolvers<void>();

  constructor(session: Session, task: ReaderTask, send: (line: ReaderLine) => void) {
    this.#session = session;
    this.#task = task;
    this.#send = send;
  }

  /** Transfers the subscription of the previous session, or creates one. */
  async open(canTransfer: boolean): Promise<void> {
    const { kept } = this.#task;
    const { value } = await this.#session.raw.read({ nodeId: SERVER_START, attributeId: ua.AttributeIds.Value });
    this.#serverStartMs = value?.value instanceof Date ? value.value.getTime() : 0;
    this.#resolveItems();
    const isTried = canTransfer && kept?.serverStartMs === this.#serverStartMs;
    const result = isTried ? await this.#transfer(kept) : 'expired';
    const isTransferable = canTransfer && result !== 'rejected';
    const isNew = result !== 'transferred';
    if (isNew) await this.#create(isTransferable);
    await this.#updateItems(isNew);
    this.isKept = isTransferable;
  }

  /** Acknowledges a message that is on disk, and all earlier ones. */
  stored([subscription, sequence]: MessageId): void {
    if (subscription !== this.#id) return;
    while (this.#unstored[0] && this.#unstored[0].sequence <= sequence)
      this.#acknowledgements.push(this.#unstored.shift()!.sequence);
    this.#wake.resolve();
    this.#wake = Promise.withResolvers();
  }

  /** Receives notifications until the session ends, then rejects. */
  async receive(): Promise<never> {
    const { raw } = this.#session;
    const publish = promisify(raw.publish.bind(raw));
    for (;;) {
      while (this.#unstored.reduce((sum, { values }) => sum + values, 0) >= MAX_UNSTORED) await this.#wake.promise;
      const request = new ua.PublishRequest({
        requestHeader: { timeoutHint: this.#publishTimeoutMs },
        subscriptionAcknowledgements: this.#acknowledgements.splice(0).map((sequenceNumber) => {
          return { subscriptionId: this.#id, sequenceNumber };
        }),
      });
      const { subscriptionId, notificationMessage } = (await publish(request))!;
      // No data is a keep-alive. A subscription of a previous session may report that it was transferred.
      if (subscriptionId === this.#id && notificationMessage.notificationData?.length)
        await this.#report(notificationMessage);
    }
  }

  /** Retries rejected nodes until the signal, because servers may load their models after startup. */
  async retryRejected(clock: Clock, signal: AbortSignal): Promise<never> {
    for (;;) {
      await clock.sleep(RETRY_REJECTED_MS, signal);
      if (this.#rejected.length === 0) continue;
      await this.#session.readNamespaces();
      this.#resolveItems();
      await this.#updateItems(false);
    }
  }

  async #report({ sequenceNumber, notificationData }: ua.NotificationMessage): Promise<void> {
    const status = notificationData?.find((data) => data instanceof ua.StatusChangeNotification)?.status;
    if (status && !isGood(status)) throw new Error(`the subscription was closed (${status.name})`);
    const changes = (notificationData ?? []).flatMap((data) =>
      data instanceof ua.DataChangeNotification ? (data.monitoredItems ?? []) : [],
    );
    await this.#session.decodeStructures(changes.map(({ value }) => value));
    const values: ReadValue[] = [];
    for (const { clientHandle, value } of changes) {
      const monitored = this.#monitored.get(clientHandle);
      const { places = [] } = this.#wanted.get(monitored?.key ?? '') ?? {};
      for (const place of places) values.push([place, ...readingOf(value, this.#task.items[place]!)]);
      if (monitored === undefined || !VANISHED.test(value.statusCode.name)) continue;
      // Servers do not report a node again after it was deleted, so its item is replaced.
      monitored.key = '';
      for (const place of places) this.#rejected.push([place, statusText(value.statusCode)]);
    }
    this.#unstored.push({ sequence: sequenceNumber, values: values.length });
    while (values.length > MAX_VALUES_PER_LINE) this.#send({ values: values.splice(0, MAX_VALUES_PER_LINE) });
    this.#send({ values, message: [this.#id, sequenceNumber] });
  }

  /** Requests the current value of each item after a loss. Some servers do not support this. */
  async #reportLost(messages: number): Promise<void> {
    if (messages <= 0) return;
    this.#send({ lost: messages });
    const value = new ua.Variant({ dataType: ua.DataType.UInt32, value: this.#id });
    const call = { objectId: SERVER, methodId: RESEND_DATA, inputArguments: [value] };
    await this.#session.raw.call(call).catch(() => {});
  }

  /** Does not request the current values, because they have already been reported. */
  async #transfer(kept: KeptSubscription): Promise<'transferred' | 'rejected' | 'expired'> {
    const { raw } = this.#session;
    const request = { subscriptionIds: [kept.id], sendInitialValues: false };
    const transfer = promisify<object, ua.TransferSubscriptionsResponse>(raw.transferSubscriptions.bind(raw));
    const response = await transfer(request).catch(() => undefined);
    const [result] = response?.results ?? [];
    if (result?.statusCode === ua.StatusCodes.BadSubscriptionIdInvalid) return 'expired';
    if (!result || !isGood(result.statusCode)) return 'rejected';
    this.isKept = true;
    this.#id = kept.id;
    for (const [handle, item] of kept.items) {
      this.#monitored.set(handle, item);
      this.#nextHandle = Math.max(this.#nextHandle, handle + 1);
    }
    const parameters = { subscriptionId: kept.id, ...this.#parameters(true) };
    this.#applyRevised(await raw.modifySubscription(parameters));
    const { stored } = this.#task;
    // Sequence numbers begin with 1, so 0 means that no message is stored.
    const latest = stored?.[0] === kept.id ? stored[1] : 0;
    const available = [...(result.availableSequenceNumbers ?? [])].sort((one, other) => one - other);
    this.#acknowledgements = available.filter((one) => one <= latest);
    // A server with a full queue discards the oldest messages. Otherwise, missing numbers belong to messages about
    // transfers.
    if (available.length >= MIN_RETAINED) await this.#reportLost(available[0]! - latest - 1);
    const republish = promisify(raw.republish.bind(raw));
    for (const retransmitSequenceNumber of available.filter((one) => one > latest)) {
      try {
        const message = await republish(new ua.RepublishRequest({ subscriptionId: kept.id, retransmitSequenceNumber }));
        await this.#report(message!.notificationMessage);
      } catch (error) {
        if (!/BadMessageNotAvailable/.test(messageOf(error))) throw error;
        await this.#reportLost(1);
      }
    }
    return 'transferred';
  }

  async #create(isTransferable: boolean): Promise<void> {
    const parameters = { ...this.#parameters(isTransferable), publishingEnabled: true };
    const created = await this.#session.raw.createSubscription(parameters);
    this.#id = created.subscriptionId;
    this.#applyRevised(created);
  }

  #parameters(isTransferable: boolean) {
    const publishingMs = publishingMsOf(this.#task);
    return {
      requestedPublishingInterval: publishingMs,
      requestedMaxKeepAliveCount: Math.ceil(KEEP_ALIVE_MS / publishingMs),
      requestedLifetimeCount: Math.ceil((isTransferable ? LIFETIME_MS : SHORT_LIFETIME_MS) / publishingMs),
      maxNotificationsPerPublish: MAX_VALUES_OF_MESSAGE,
      priority: 0,
    };
  }

  #applyRevised({ revisedPublishingInterval, revisedMaxKeepAliveCount }: ua.ModifySubscriptionResponse): void {
    this.#publishingMs = revisedPublishingInterval;
    this.#publishTimeoutMs = Math.ceil(revisedPublishingInterval * revisedMaxKeepAliveCount * 2 + RESPONSE_MS);
  }

  /** Finds the node IDs of the items. */
  #resolveItems(): void {
    this.#wanted.clear();
    this.#rejected = [];
    for (const [place, item] of this.#task.items.entries()) {
      try {
        const nodeId = this.#session.nodeIdOf(item.node);
        const key = keyOf(item, nodeId);
        const known = this.#wanted.get(key);
        if (known) known.places.push(place);
        else this.#wanted.set(key, { item, nodeId, places: [place] });
      } catch (error) {
        this.#rejected.push([place, messageOf(error)]);
      }
    }
  }

  /** Deletes unused items, adds new ones and reports the result. Other items keep their queues. */
  async #updateItems(isNew: boolean): Promise<void> {
    const subscriptionId = this.#id;
    const unused = [...this.#monitored].filter(([, { key }]) => !this.#wanted.has(key));
    await this.#session.inBatches(unused, async (some) => {
      const monitoredItemIds = some.map(([, { monitoredItem }]) => monitoredItem);
      await this.#session.raw.deleteMonitoredItems({ subscriptionId, monitoredItemIds });
      for (const [handle] of some) this.#monitored.delete(handle);
    });
    const existing = new Set([...this.#monitored.values()].map(({ key }) => key));
    const added = [...this.#wanted].filter(([key]) => !existing.has(key));
    const sizeBefore = this.#monitored.size;
    await this.#monitor(added);
    if (this.#monitored.size > sizeBefore || this.#reported === '') this.#history = await this.#readableHistory();
    const state = {
      subscription: { id: subscriptionId, serverStartMs: this.#serverStartMs, items: [...this.#monitored] },
      namespaces: this.#session.namespaces,
      rejected: this.#rejected,
      history: this.#history,
      revised: this.#revised(),
      certificateEndsMs: this.#session.certificateEndsMs,
    };
    const text = JSON.stringify(state);
    if (text !== this.#reported) this.#send({ ...state, isNew });
    this.#reported = text;
  }

  async #readableHistory(): Promise<number[]> {
    const items = [...this.#wanted.values()];
    const nodes = new Map(items.map(({ nodeId }) => [String(nodeId), nodeId]));
    const ids = [...nodes.values()].map((nodeId) => ({ nodeId, attributeId: ua.AttributeIds.UserAccessLevel }));
    const levels = await this.#session.read(ids);
    const isReadable = (at: number) => (levels[at]?.value?.value ?? 0) & ua.AccessLevelFlag.HistoryRead;
    const readable = new Set([...nodes.keys()].filter((_, at) => isReadable(at)));
    return items.flatMap(({ nodeId, places }) => (readable.has(String(nodeId)) ? places : []));
  }

  /** Returns the items that the server samples more slowly, queues less or reports less often than requested. */
  #revised(): ItemProblem[] {
    const publishingMs = publishingMsOf(this.#task);
    return [...this.#monitored.values()].flatMap(({ key, samplingMs, queueSize }) => {
      const { item, places } = this.#wanted.get(key)!;
      const what: string[] = [];
      if (item.samplingMs > 0 && samplingMs > item.samplingMs)
        what.push(`sampled every ${samplingMs} ms instead of ${item.samplingMs} ms`);
      if (queueSize < item.queueSize) what.push(`${queueSize} of ${item.queueSize} values queued`);
      if (this.#publishingMs > publishingMs && this.#publishingMs > queueSize * samplingMs)
        what.push(`sent every ${this.#publishingMs} ms instead of ${publishingMs} ms`);
      return what.length === 0 ? [] : places.map((place): ItemProblem => [place, what.join(', ')]);
    });
  }

  async #monitor(all: readonly [key: string, ResolvedItem][]): Promise<void> {
    await this.#session.inBatches(all, async (some) => {
      const first = this.#nextHandle;
      this.#nextHandle += some.length;
      const { results } = await this.#session.raw.createMonitoredItems({
        subscriptionId: this.#id,
        timestampsToReturn: ua.TimestampsToReturn.Both,
        itemsToCreate: some.map(([, { item, nodeId }], at) => ({
          itemToMonitor: valueIdOf(nodeId, item),
          monitoringMode: ua.MonitoringMode.Reporting,
          requestedParameters: {
            clientHandle: first + at,
            samplingInterval: item.samplingMs,
            queueSize: item.queueSize,
            discardOldest: true,
            filter: filterOf(item),
          },
        })),
      });
      for (const [at, [key, { places }]] of some.entries()) {
        const { statusCode, monitoredItemId, revisedSamplingInterval, revisedQueueSize } = results?.[at] ?? {};
        if (statusCode && isGood(statusCode)) {
          this.#monitored.set(first + at, {
            key,
            monitoredItem: monitoredItemId!,
            samplingMs: revisedSamplingInterval!,
            queueSize: revisedQueueSize!,
          });
        } else {
          const why = statusCode ? statusText(statusCode) : 'no response';
          this.#rejected.push(...places.map((place): ItemProblem => [place, why]));
        }
      }
    });
  }
}

/** Returns the requested publishing interval, in milliseconds. */
function publishingMsOf({ items }: ReaderTask): number {
  const fastest = Math.min(...items.map(({ samplingMs }) => samplingMs));
  return Math.min(Math.max(fastest, MIN_PUBLISHING_MS), MAX_PUBLISHING_MS);
}

/** Returns the key of the settings with which the server monitors an item. */
function keyOf({ index, samplingMs, queueSize, trigger }: Item, nodeId: ua.NodeId): string {
  return [nodeId.toString(), index ?? '', samplingMs, queueSize, trigger].join(' ');
}

/** Returns null if the filter equals the server default. */
function filterOf({ trigger }: Item): ua.DataChangeFilter | null {
  return trigger === 'value' ? null : new ua.DataChangeFilter({ trigger: TRIGGERS[trigger] });
}
