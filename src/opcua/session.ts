/** Connections to servers: limits of the transport, certificates, users, and the services of a session. */
import * as ua from 'node-opcua-client';
import { ClientTCP_transport } from 'node-opcua-transport';
import { pemEndsMs } from '../base/certificates.ts';
import { readRegularFileSync } from '../base/regular-file.ts';
import { ownCertificate, trustStore } from './certificates.ts';
import { type Endpoint, type Inspected, MAX_MESSAGE_BYTES } from './protocol.ts';

/** Timeout for server responses. */
export const RESPONSE_MS = 15_000;
/** Requested timeout of an idle session. */
const SESSION_MS = 120_000;
const MAX_CHUNK_BYTES = 64 * 1024;
const MIN_CHUNK_BYTES = 8 * 1024;
/**
 * Maximum number of operations per request; small controllers do not accept more, and some do not report their limit.
 */
const MAX_OPERATIONS = 100;
/** Maximum number of references per Browse response. Further references are requested with the continuation point. */
const MAX_REFERENCES = 1_000;
const MAX_PASSWORD_BYTES = 4096;
/** Standard form of a node ID with a namespace URI (OPC 10000-6, 5.1.12). */
const BY_URI = /^nsu=([^;]+);(.+)$/;
const BY_INDEX = /^ns=(\d+);/;
const NAMESPACE_ARRAY = 'i=2255';
/** MaxNodesPerRead and MaxMonitoredItemsPerCall (OPC 10000-5, 6.3.11). */
const OPERATION_LIMITS = ['i=11705', 'i=11714'];

/**
 * Limits that the client requests in its Hello and enforces chunk by chunk, before anything is decoded. By default,
 * node-opcua uses the server's limits, and a server limit of 0 means no limit.
 */
class BoundedTransport extends ClientTCP_transport {
  override setLimits(limits: Parameters<ClientTCP_transport['setLimits']>[0]): void {
    super.setLimits({
      ...limits,
      receiveBufferSize: Math.min(limits.receiveBufferSize || MAX_CHUNK_BYTES, MAX_CHUNK_BYTES),
      sendBufferSize: Math.min(limits.sendBufferSize || MAX_CHUNK_BYTES, MAX_CHUNK_BYTES),
      maxMessageSize: Math.min(limits.maxMessageSize || MAX_MESSAGE_BYTES, MAX_MESSAGE_BYTES),
    });
  }
}

async function createClient(
  identity: Endpoint['identity'],
  trust: ReturnType<typeof trustStore>,
  options: ua.OPCUAClientOptions = {},
): Promise<ua.OPCUAClient> {
  const { certFile, keyFile, applicationUri } = await ownCertificate(identity);
  return ua.OPCUAClient.create({
    applicationName: 'tagferry',
    applicationUri,
    certificateFile: certFile,
    privateKeyFile: keyFile,
    clientCertificateManager: trust,
    // Servers announce internal addresses, which a gateway behind a router cannot reach.
    endpointMustExist: false,
    connectionStrategy: { maxRetry: 0 },
    transportSettings: {
      maxMessageSize: MAX_MESSAGE_BYTES,
      maxChunkCount: MAX_MESSAGE_BYTES / MIN_CHUNK_BYTES,
      receiveBufferSize: MAX_CHUNK_BYTES,
      sendBufferSize: MAX_CHUNK_BYTES,
    },
    transportFactory: { create: (settings) => new BoundedTransport(settings) },
    transportTimeout: RESPONSE_MS,
    defaultTransactionTimeout: RESPONSE_MS,
    ...options,
  });
}

/** Reads the endpoints of a server without a session. The response is not authenticated. */
export async function inspect({ url, identity }: Pick<Endpoint, 'url' | 'identity'>): Promise<Inspected> {
  const { certFile: own } = await ownCertificate(identity);
  const client = await createClient(identity, trustStore(''));
  try {
    await client.connect(url);
    const endpoints = await client.getEndpoints();
    const withCertificate = endpoints.find(({ serverCertificate }) => serverCertificate?.length > 0);
    return {
      own,
      ...(withCertificate ? { certificate: withCertificate.serverCertificate.toString('base64') } : {}),
      endpoints: endpoints.map(({ securityPolicyUri, securityMode, userIdentityTokens }) => ({
        policy: /#([^#]+)$/.exec(securityPolicyUri ?? '')?.[1] ?? 'None',
        mode: ua.MessageSecurityMode[securityMode],
        users: [...new Set((userIdentityTokens ?? []).map(({ tokenType }) => ua.UserTokenType[tokenType]))],
      })),
    };
  } finally {
    await client.disconnect().catch(() => {});
  }
}

/** Returns the user of a session. Throws if its files cannot be read. */
function userOf({ user }: Endpoint): ua.UserIdentityInfo {
  if (user === undefined) return { type: ua.UserTokenType.Anonymous };
  if ('name' in user) return { type: ua.UserTokenType.UserName, userName: user.name, password: passwordOf(user) };
  return {
    type: ua.UserTokenType.Certificate,
    certificateData: ua.crypto_utils.convertPEMtoDER(readRegularFileSync(user.certFile).bytes.toString('latin1')),
    privateKey: readRegularFileSync(user.keyFile).bytes.toString('latin1'),
  };
}

export function passwordOf({ passwordFile }: { passwordFile?: string }): string {
  if (passwordFile === undefined) return '';
  const { bytes } = readRegularFileSync(passwordFile, MAX_PASSWORD_BYTES);
  return bytes.toString().replace(/\r?\n$/, '');
}

/** The server certificate is not in the trust folder. */
export class UntrustedServer extends Error {
  readonly certificate: Buffer;

  constructor(certificate: Buffer) {
    super('server certificate is not trusted');
    this.certificate = certificate;
  }
}

/**
 * One connection with one session. After a failure, the caller opens another session. The subscription services are
 * those of the specification: the library's `ClientSubscription` acknowledges a message when it arrives.
 */
export class Session {
  readonly raw: ua.ClientSession & ua.ClientSessionRawSubscriptionService & ua.ClientSessionPublishService;
  /** Namespace URIs of the server, by index. Indices may change when the server restarts; URIs do not. */
  namespaces: readonly string[] = [];
  /** Rejects when the connection or the session ends. */
  readonly broken: Promise<never>;
  readonly #client: ua.OPCUAClient;
  readonly #endpoint: Endpoint;
  readonly #firstNamespaces: readonly string[];
  #operations = MAX_OPERATIONS;
  /** Encodings of structures that cannot be decoded. */
  readonly #unknownTypes = new Set<string>();

  private constructor(
    client: ua.OPCUAClient,
    raw: ua.ClientSession,
    endpoint: Endpoint,
    firstNamespaces: readonly string[],
  ) {
    this.#client = client;
    this.#endpoint = endpoint;
    this.#firstNamespaces = firstNamespaces;
    this.raw = raw as Session['raw'];
    this.raw.requestedMaxReferencesPerNode = MAX_REFERENCES;
    const { promise, reject } = Promise.withResolvers<never>();
    this.broken = promise;
    promise.catch(() => {});
    // Later than the requests that fail for the same reason, because their errors are more specific.
    const onLost = (why: string) => () => setImmediate(() => reject(new Error(why)));
    client.once('connection_lost', onLost('connection lost'));
    client.once('close', onLost('connection lost'));
    this.raw.once('session_closed', onLost('session closed by the server'));
  }

  /**
   * Throws server, network and file errors, and `UntrustedServer`. `firstNamespaces`: the URIs to which `ns=` node IDs
   * refer.
   */
  static async open(endpoint: Endpoint, firstNamespaces: readonly string[] = []): Promise<Session> {
    const trust = trustStore(endpoint.trustFolder);
    const client = await createClient(endpoint.identity, trust, {
      clientName: 'tagferry',
      securityPolicy: ua.SecurityPolicy[endpoint.policy],
      securityMode: ua.MessageSecurityMode[endpoint.mode],
      requestedSessionTimeout: SESSION_MS,
      // `close` decides whether to delete the subscriptions of the session.
      keepPendingSessionsOnDisconnect: true,
      // Load only the types of structures that are read.
      dataTypeExtractStrategy: ua.DataTypeExtractStrategy.Lazy,
    });
    try {
      await client.connect(endpoint.url);
      const session = new Session(client, await client.createSession(userOf(endpoint)), endpoint, firstNamespaces);
      await session.readNamespaces();
      return session;
    } catch (error) {
      await client.disconnect().catch(() => {});
      throw trust.rejected ? new UntrustedServer(trust.rejected) : error;
    }
  }

  /** Expiry time of the server certificate; `undefined` if it is not used. */
  get certificateEndsMs(): number | undefined {
    const [certificate] = [this.#client.serverCertificate].flat();
    return this.#endpoint.policy === 'None' || certificate === undefined ? undefined : pemEndsMs(certificate);
  }

  /** Reads the namespaces and the operation limits of the server. */
  async readNamespaces(): Promise<void> {
    const ids = [NAMESPACE_ARRAY, ...OPERATION_LIMITS].map((nodeId) => {
      return { nodeId, attributeId: ua.AttributeIds.Value };
    });
    const [uris, ...limits] = (await this.inBatches(ids, (some) => this.raw.read([...some]))).flat();
    this.namespaces = Array.isArray(uris?.value?.value) ? uris.value.value : [];
    for (const { value } of limits) {
      const limit = Number(value?.value);
      if (Number.isInteger(limit) && limit > 0) this.#operations = Math.min(this.#operations, limit);
    }
  }

  /**
   * Returns the node ID for this session. Throws if the server does not have the namespace, or if another namespace had
   * this index in the first session.
   */
  nodeIdOf(node: string): ua.NodeId {
    const [, escapedUri, identifier] = BY_URI.exec(node) ?? [];
    if (escapedUri !== undefined) {
      const uri = escapedUri.replaceAll(/%3b/gi, ';').replaceAll('%25', '%');
      const index = this.namespaces.indexOf(uri);
      if (index === -1) throw new Error(`the server does not have the namespace ${uri}`);
      return ua.resolveNodeId(`ns=${index};${identifier}`);
    }
    const index = Number(BY_INDEX.exec(node)?.[1] ?? 0);
    const [before, now = 'unused'] = [this.#firstNamespaces[index], this.namespaces[index]];
    if (before === undefined || before === now) return ua.resolveNodeId(node);
    throw new Error(`the server has renumbered its namespaces: index ${index} was ${before} and is now ${now}`);
  }

  /** Returns the node ID with its namespace URI, which remains valid if the server renumbers its namespaces. */
  textOf(nodeId: ua.NodeId): string {
    const text = nodeId.toString();
    const identifier = text.slice(text.indexOf(';') + 1);
    if (nodeId.namespace === 0) return identifier;
    const uri = this.namespaces[nodeId.namespace];
    return uri ? `nsu=${uri.replaceAll('%', '%25').replaceAll(';', '%3B')};${identifier}` : text;
  }

  /** Never rejects. */
  async close(deleteSubscriptions: boolean): Promise<void> {
    await Promise.race([this.raw.close(deleteSubscriptions), this.broken]).catch(() => {});
    await this.#client.disconnect().catch(() => {});
  }

  /**
   * Runs a service for all items, in requests as large as the server accepts. If the server rejects a request as too
   * large, the size of this request and all later requests is halved. Rejects with any other error from `send`.
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
  async read(values: readonly ua.ReadValueIdOptions[]): Promise<ua.DataValue[]> {
    const found = (await this.inBatches(values, (some) => this.raw.read([...some]))).flat();
    await this.decodeStructures(found);
    return found;
  }

  /** Decodes structures in place. Loads their types from the server if necessary. */
  async decodeStructures(values: readonly ua.DataValue[]): Promise<void> {
    const opaque = ua
      .extractDataValueToPromote([...values])
      .filter((value) => !this.#unknownTypes.has(encodingOf(value)));
    if (opaque.length === 0) return;
    await ua.promoteOpaqueStructure(this.raw, opaque);
    // Do not retry unknown types, because each attempt would load the type again.
    for (const value of ua.extractDataValueToPromote(opaque)) this.#unknownTypes.add(encodingOf(value));
  }
}

/** Returns the encoding that identifies the type of a structure. */
function encodingOf({ value }: ReturnType<typeof ua.extractDataValueToPromote>[number]): string {
  return String(([value.value].flat()[0] as { nodeId: ua.NodeId }).nodeId);
}
