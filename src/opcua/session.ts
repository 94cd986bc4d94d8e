import {
  AttributeIds,
  type ClientSession,
  type ClientSessionPublishService,
  type ClientSessionRawSubscriptionService,
  crypto_utils,
  DataType,
  DataTypeExtractStrategy,
  type DataValue,
  extractDataValueToPromote,
  MessageSecurityMode,
  type NodeId,
  type OPCUAClient,
  PublishRequest,
  type PublishResponse,
  promoteOpaqueStructure,
  type ReadValueIdOptions,
  RepublishRequest,
  type RepublishResponse,
  SecurityPolicy,
  type SubscriptionAcknowledgement,
  type TransferSubscriptionsResponse,
  Variant,
} from 'node-opcua-client';
import { createClient } from './client.ts';
import { Namespaces } from './namespaces.ts';
import { ownCertificate } from './own-certificate.ts';
import { UntrustedServer } from './problems.ts';
import type { Endpoint } from './protocol.ts';
import { TrustFolder } from './trust-folder.ts';
import { userOf } from './user.ts';

/** node-opcua session with the specification's subscription services, because the agent decides when to acknowledge. */
type RawSession = ClientSession & ClientSessionRawSubscriptionService & ClientSessionPublishService;

/** Requested timeout of an idle session. */
const SESSION_MS = 120_000;
/** node-opcua error message for messages that exceed the limits of `BoundedTransport`. */
const TOO_LARGE = /max (chunk count|message size) exceeded/;
/** Maximum number of operations per request; small controllers do not accept more. */
const MAX_OPERATIONS = 100;
/** Maximum number of references per Browse response. Further references are requested with the continuation point. */
const MAX_REFERENCES = 1_000;
const NAMESPACE_ARRAY = 'i=2255';
const SERVER = 'i=2253';
const RESEND_DATA = 'i=12873';

/**
 * A notification exceeds the limits of the transport. The server would send it again after a transfer of the
 * subscription.
 */
export class OversizedMessage extends Error {
  constructor() {
    super('messages of the server are too large');
  }
}

/** One connection with one session. After a failure, the caller opens another session. */
export class Session {
  readonly raw: RawSession;
  /** Expiry time of the server certificate; `undefined` if there is none. */
  readonly certificateEndsMs: number | undefined;
  #namespaces = new Namespaces([]);
  readonly #client: OPCUAClient;
  readonly #broken = Promise.withResolvers<never>();
  #operations = MAX_OPERATIONS;
  /** Encodings of structures that cannot be decoded. */
  readonly #unknownTypes = new Set<string>();
  /** Whether a notification has exceeded the limits: node-opcua fails its request, then ends the connection. */
  #isOversized = false;

  private constructor(client: OPCUAClient, raw: RawSession, certificate: Buffer | undefined) {
    this.#client = client;
    this.raw = raw;
    this.certificateEndsMs =
      certificate && crypto_utils.exploreCertificate(certificate).tbsCertificate.validity.notAfter.getTime();
    this.#broken.promise.catch(() => {});
    const onLost = () => this.#broken.reject(this.#isOversized ? new OversizedMessage() : new Error('connection lost'));
    client.once('connection_lost', onLost);
    client.once('close', onLost);
    raw.once('session_closed', () => this.#broken.reject(new Error('session closed by the server')));
  }

  /** Throws server, network and file errors, and `UntrustedServer`. */
  static async open(endpoint: Endpoint): Promise<Session> {
    const trust = new TrustFolder(endpoint.trustFolder);
    const client = createClient(await ownCertificate(endpoint.identity), trust, {
      clientName: 'tagferry',
      securityPolicy: SecurityPolicy[endpoint.policy],
      securityMode: MessageSecurityMode[endpoint.mode],
      requestedSessionTimeout: SESSION_MS,
      // `close` decides whether to delete the subscriptions of the session.
      keepPendingSessionsOnDisconnect: true,
      // Load only the types of structures that are read.
      dataTypeExtractStrategy: DataTypeExtractStrategy.Lazy,
    });
    try {
      await client.connect(endpoint.url);
      const raw = (await client.createSession(userOf(endpoint))) as RawSession;
      raw.requestedMaxReferencesPerNode = MAX_REFERENCES;
      const [certificate] = [client.serverCertificate].flat();
      const session = new Session(client, raw, endpoint.policy === 'None' ? undefined : certificate);
      await session.readNamespaces();
      return session;
    } catch (error) {
      await client.disconnect().catch(() => {});
      throw trust.rejected ? new UntrustedServer(trust.rejected) : error;
    }
  }

  /** Namespaces returned by the latest `readNamespaces`. */
  get namespaces(): Namespaces {
    return this.#namespaces;
  }

  async readNamespaces(): Promise<void> {
    const { value } = await this.raw.read({ nodeId: NAMESPACE_ARRAY, attributeId: AttributeIds.Value });
    this.#namespaces = new Namespaces(Array.isArray(value?.value) ? (value.value as string[]) : []);
  }

  /** Rejects when the connection or the session ends. */
  get broken(): Promise<never> {
    return this.#broken.promise;
  }

  /** Never rejects. */
  async close(deleteSubscriptions: boolean): Promise<void> {
    await Promise.race([this.raw.close(deleteSubscriptions), this.broken]).catch(() => {});
    await this.#client.disconnect().catch(() => {});
  }

  publish(acknowledged: readonly Partial<SubscriptionAcknowledgement>[], timeoutMs: number): Promise<PublishResponse> {
    const request = new PublishRequest({
      requestHeader: { timeoutHint: timeoutMs },
      subscriptionAcknowledgements: [...acknowledged],
    });
    return this.#notification((callback) => this.raw.publish(request, callback));
  }

  republish(subscriptionId: number, retransmitSequenceNumber: number): Promise<RepublishResponse> {
    const request = new RepublishRequest({ subscriptionId, retransmitSequenceNumber });
    return this.#notification((callback) => this.raw.republish(request, callback));
  }

  #notification<Response>(send: (callback: Callback<Response>) => void): Promise<Response> {
    return promised((callback) =>
      send((error, response) => {
        this.#isOversized ||= TOO_LARGE.test(error?.message ?? '');
        callback(this.#isOversized ? new OversizedMessage() : error, response);
      }),
    );
  }

  /**
   * Runs a service for all items, in requests as large as the server accepts (OPC 10000-5, OperationLimits). If the
   * server rejects a request as too large, the size of this request and all later requests is halved. Rejects with any
   * other error from `send`.
   */
  async inBatches<Item, Result>(
    all: readonly Item[],
    send: (some: readonly Item[]) => Promise<Result>,
  ): Promise<Result[]> {
    const results: Result[] = [];
    for (let from = 0; from < all.length; ) {
      const some = all.slice(from, from + this.#operations);
      try {
        results.push(await send(some));
        from += some.length;
      } catch (error) {
        if (some.length === 1 || !/BadTooManyOperations/.test(String(error))) throw error;
        this.#operations = Math.ceil(some.length / 2);
      }
    }
    return results;
  }

  /** Reads values in order and decodes their structures. */
  async read(values: readonly ReadValueIdOptions[]): Promise<DataValue[]> {
    const found = (await this.inBatches(values, (some) => this.raw.read([...some]))).flat();
    await this.decodeStructures(found);
    return found;
  }

  /** Decodes structures in place. Loads their types from the server if necessary. */
  async decodeStructures(values: readonly DataValue[]): Promise<void> {
    const isKnown = (value: Opaque) => !this.#unknownTypes.has(encodingOf(value));
    const opaque = extractDataValueToPromote([...values]).filter(isKnown);
    if (opaque.length === 0) return;
    await promoteOpaqueStructure(this.raw, opaque);
    // Do not retry unknown types, because each attempt would load the type again.
    for (const value of extractDataValueToPromote(opaque)) this.#unknownTypes.add(encodingOf(value));
  }

  /** Requests the current value of each item. Some servers do not support this. */
  async resendData(subscriptionId: number): Promise<void> {
    const value = new Variant({ dataType: DataType.UInt32, value: subscriptionId });
    await this.raw.call({ objectId: SERVER, methodId: RESEND_DATA, inputArguments: [value] }).catch(() => {});
  }

  /** Does not request initial values, because they have already been reported. */
  transfer(subscriptionId: number): Promise<TransferSubscriptionsResponse> {
    const request = { subscriptionIds: [subscriptionId], sendInitialValues: false };
    return promised((callback) => this.raw.transferSubscriptions(request, callback));
  }
}

type Opaque = ReturnType<typeof extractDataValueToPromote>[number];

/** Returns the encoding that identifies the type of a structure. */
function encodingOf({ value }: Opaque): string {
  return String(([value.value].flat()[0] as { nodeId: NodeId }).nodeId);
}

type Callback<Response> = (error: Error | null, response?: Response) => void;

function promised<Response>(send: (callback: Callback<Response>) => void): Promise<Response> {
  return new Promise((resolve, reject) =>
    send((error, response) => (response === undefined ? reject(error ?? new Error('no response')) : resolve(response))),
  );
}
