/** Connections to servers: limits of the transport, certificates, users, and the services of a session. */
import {
  AttributeIds,
  type ClientSession,
  type ClientSessionPublishService,
  type ClientSessionRawSubscriptionService,
  crypto_utils,
  DataTypeExtractStrategy,
  type DataValue,
  extractDataValueToPromote,
  MessageSecurityMode,
  type NodeId,
  OPCUAClient,
  type OPCUAClientOptions,
  PublishRequest,
  type PublishResponse,
  promoteOpaqueStructure,
  type ReadValueIdOptions,
  RepublishRequest,
  type RepublishResponse,
  SecurityPolicy,
  type TransferSubscriptionsResponse,
  type UserIdentityInfo,
  UserTokenType,
} from 'node-opcua-client';
import type { IClientTransportFactory } from 'node-opcua-transport';
import { ClientTCP_transport } from 'node-opcua-transport';
import { Redactor } from '../base/redactor.ts';
import { readRegularFileSync } from '../base/regular-file.ts';
import { ownCertificate, TrustFolder, UntrustedServer } from './certificates.ts';
import { Namespaces } from './namespaces.ts';
import type { Endpoint, Inspected } from './protocol.ts';

/** Timeout for server responses. */
const RESPONSE_MS = 15_000;
/** Requested timeout of an idle session. */
const SESSION_MS = 120_000;
/**
 * Maximum size of a message, in bytes, checked chunk by chunk before anything is decoded. A value uses 7 to 22 bytes in a
 * message and up to 300 bytes of memory, so the largest message requires about 30 MB.
 */
export const MAX_MESSAGE_BYTES = 2 * 1024 * 1024;
const MAX_CHUNK_BYTES = 64 * 1024;
/** node-opcua error message for messages that exceed these limits. */
const TOO_LARGE = /max (chunk count|message size) exceeded/;
/** Maximum number of operations per request; small controllers do not accept more. */
const MAX_OPERATIONS = 100;
/** Maximum number of references per Browse response. Further references are requested with the continuation point. */
const MAX_REFERENCES = 1_000;
const MAX_PASSWORD_BYTES = 4096;
const NAMESPACE_ARRAY = 'i=2255';
const POLICY = /#([^#]+)$/;

type Limits = Parameters<ClientTCP_transport['setLimits']>[0];

/** Limits that the client requests in its Hello and enforces. By default, node-opcua uses the server's limits. */
class BoundedTransport extends ClientTCP_transport {
  override setLimits({ receiveBufferSize, sendBufferSize, maxMessageSize, maxChunkCount }: Limits): void {
    super.setLimits({
      receiveBufferSize: bounded(receiveBufferSize, MAX_CHUNK_BYTES),
      sendBufferSize: bounded(sendBufferSize, MAX_CHUNK_BYTES),
      maxMessageSize: bounded(maxMessageSize, MAX_MESSAGE_BYTES),
      // Bounded by the message size; 0 selects the node-opcua default.
      maxChunkCount,
    });
  }
}

/** Returns the server's limit, but at most `max`. A server limit of 0 means no limit. */
function bounded(limit: number, max: number): number {
  return limit === 0 ? max : Math.min(limit, max);
}

async function createClient(
  identity: Endpoint['identity'],
  trust: TrustFolder,
  options: OPCUAClientOptions = {},
): Promise<OPCUAClient> {
  const { certFile, keyFile, applicationUri } = await ownCertificate(identity);
  return OPCUAClient.create({
    applicationName: 'tagferry',
    applicationUri,
    certificateFile: certFile,
    privateKeyFile: keyFile,
    clientCertificateManager: trust.asStore(),
    // Servers announce internal addresses, which a gateway behind a router cannot reach.
    endpointMustExist: false,
    connectionStrategy: { maxRetry: 0 },
    transportSettings: {
      maxMessageSize: MAX_MESSAGE_BYTES,
      maxChunkCount: MAX_MESSAGE_BYTES / 8_192,
      receiveBufferSize: MAX_CHUNK_BYTES,
      sendBufferSize: MAX_CHUNK_BYTES,
    },
    transportFactory: { create: (settings) => new BoundedTransport(settings) } satisfies IClientTransportFactory,
    transportTimeout: RESPONSE_MS,
    defaultTransactionTimeout: RESPONSE_MS,
    ...options,
  });
}

/** Reads the endpoints of a server without a session. The response is not authenticated. */
export async function inspect({ url, identity }: Pick<Endpoint, 'url' | 'identity'>): Promise<Inspected> {
  const { certFile: own } = await ownCertificate(identity);
  const client = await createClient(identity, new TrustFolder(''));
  try {
    await client.connect(url);
    const endpoints = await client.getEndpoints();
    const withCertificate = endpoints.find(({ serverCertificate }) => serverCertificate?.length > 0);
    return {
      own,
      ...(withCertificate ? { certificate: withCertificate.serverCertificate.toString('base64') } : {}),
      endpoints: endpoints.map(({ securityPolicyUri, securityMode, userIdentityTokens }) => ({
        policy: POLICY.exec(securityPolicyUri ?? '')?.[1] ?? 'None',
        mode: MessageSecurityMode[securityMode],
        users: [...new Set((userIdentityTokens ?? []).map(({ tokenType }) => UserTokenType[tokenType]))],
      })),
    };
  } finally {
    await client.disconnect().catch(() => {});
  }
}

/** Returns the user of a session. Throws if its files cannot be read. */
function userOf({ user }: Endpoint): UserIdentityInfo {
  if (user === undefined) return { type: UserTokenType.Anonymous };
  if ('certFile' in user) {
    return {
      type: UserTokenType.Certificate,
      certificateData: crypto_utils.convertPEMtoDER(readRegularFileSync(user.certFile).bytes.toString('latin1')),
      privateKey: readRegularFileSync(user.keyFile).bytes.toString('latin1'),
    };
  }
  return { type: UserTokenType.UserName, userName: user.name, password: passwordOf(user.passwordFile) };
}

function passwordOf(file: string | undefined): string {
  if (file === undefined) return '';
  return readRegularFileSync(file, MAX_PASSWORD_BYTES)
    .bytes.toString()
    .replace(/\r?\n$/, '');
}

/** Removes the password that was sent to the server from an error message of the server. */
export function withoutPassword(text: string, { user }: Partial<Endpoint>): string {
  const redactor = new Redactor();
  try {
    if (user && 'name' in user) redactor.configure([passwordOf(user.passwordFile)]);
  } catch {
    // An unreadable password was not sent.
  }
  return redactor.redact(text);
}

/** A notification exceeds the limits of the transport. The server would send it again after a transfer. */
export class OversizedMessage extends Error {
  constructor() {
    super('messages of the server are too large');
  }
}

/**
 * One connection with one session. After a failure, the caller opens another session. The subscription services are
 * those of the specification: the library's `ClientSubscription` acknowledges a message when it arrives.
 */
export class Session {
  readonly raw: ClientSession & ClientSessionRawSubscriptionService & ClientSessionPublishService;
  /** Expiry time of the server certificate; `undefined` if there is none. */
  readonly certificateEndsMs: number | undefined;
  namespaces = new Namespaces([]);
  readonly #client: OPCUAClient;
  readonly #broken = Promise.withResolvers<never>();
  #operations = MAX_OPERATIONS;
  /** Encodings of structures that cannot be decoded. */
  readonly #unknownTypes = new Set<string>();
  /** Whether a notification has exceeded the limits: node-opcua fails its request, then ends the connection. */
  #isOversized = false;

  private constructor(client: OPCUAClient, session: ClientSession, certificate: Buffer | undefined) {
    this.#client = client;
    this.raw = session as Session['raw'];
    this.raw.requestedMaxReferencesPerNode = MAX_REFERENCES;
    this.certificateEndsMs =
      certificate && crypto_utils.exploreCertificate(certificate).tbsCertificate.validity.notAfter.getTime();
    this.#broken.promise.catch(() => {});
    const onLost = () => this.#broken.reject(this.#isOversized ? new OversizedMessage() : new Error('connection lost'));
    client.once('connection_lost', onLost);
    client.once('close', onLost);
    this.raw.once('session_closed', () => this.#broken.reject(new Error('session closed by the server')));
  }

  /** Throws server, network and file errors, and `UntrustedServer`. */
  static async open(endpoint: Endpoint): Promise<Session> {
    const trust = new TrustFolder(endpoint.trustFolder);
    const client = await createClient(endpoint.identity, trust, {
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
      const raw = await client.createSession(userOf(endpoint));
      const [certificate] = [client.serverCertificate].flat();
      const session = new Session(client, raw, endpoint.policy === 'None' ? undefined : certificate);
      await session.readNamespaces();
      return session;
    } catch (error) {
      await client.disconnect().catch(() => {});
      throw trust.rejected ? new UntrustedServer(trust.rejected) : error;
    }
  }

  async readNamespaces(): Promise<void> {
    const { value } = await this.raw.read({ nodeId: NAMESPACE_ARRAY, attributeId: AttributeIds.Value });
    this.namespaces = new Namespaces(Array.isArray(value?.value) ? (value.value as string[]) : []);
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

  /** Waits for the next message of a subscription. */
  publish(subscriptionId: number, acknowledged: readonly number[], timeoutHint: number): Promise<PublishResponse> {
    const subscriptionAcknowledgements = acknowledged.map((sequenceNumber) => ({ subscriptionId, sequenceNumber }));
    const request = new PublishRequest({ requestHeader: { timeoutHint }, subscriptionAcknowledgements });
    return this.#call((callback) => this.raw.publish(request, callback));
  }

  republish(subscriptionId: number, retransmitSequenceNumber: number): Promise<RepublishResponse> {
    const request = new RepublishRequest({ subscriptionId, retransmitSequenceNumber });
    return this.#call((callback) => this.raw.republish(request, callback));
  }

  /** Does not request the current values, because they have already been reported. */
  transfer(subscriptionId: number): Promise<TransferSubscriptionsResponse> {
    const request = { subscriptionIds: [subscriptionId], sendInitialValues: false };
    return this.#call((callback) => this.raw.transferSubscriptions(request, callback));
  }

  #call<Response>(send: (callback: (error: Error | null, response?: Response) => void) => void): Promise<Response> {
    return new Promise((resolve, reject) => {
      send((error, response) => {
        // Recorded before the promise rejects, because node-opcua ends the connection next.
        this.#isOversized ||= TOO_LARGE.test(error?.message ?? '');
        if (response !== undefined) resolve(response);
        else reject(this.#isOversized ? new OversizedMessage() : (error ?? new Error('no response')));
      });
    });
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
}

type Opaque = ReturnType<typeof extractDataValueToPromote>[number];

/** Returns the encoding that identifies the type of a structure. */
function encodingOf({ value }: Opaque): string {
  return String(([value.value].flat()[0] as { nodeId: NodeId }).nodeId);
}
