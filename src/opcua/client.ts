/** node-opcua client that uses this gateway's certificate and a transport with limits. */
import { OPCUAClient, type OPCUAClientOptions } from 'node-opcua-client';
import type { IClientTransportFactory } from 'node-opcua-transport';
import { ClientTCP_transport } from 'node-opcua-transport';
import type { OwnCertificate } from './own-certificate.ts';
import type { TrustFolder } from './trust-folder.ts';

/** Timeout for server responses. */
const RESPONSE_MS = 15_000;

/**
 * Maximum size of a message, in bytes, checked chunk by chunk before anything is decoded. A value uses 7 to 22 bytes in a
 * message and up to 300 bytes of memory, so the largest message requires about 30 MB.
 */
export const MAX_MESSAGE_BYTES = 2 * 1024 * 1024;
const MAX_CHUNK_BYTES = 64 * 1024;

type Limits = Parameters<ClientTCP_transport['setLimits']>[0];

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

/** Limits that the client requests in its Hello and enforces. By default, node-opcua uses the server's limits. */
const BOUNDED_TRANSPORT = {
  transportSettings: {
    maxMessageSize: MAX_MESSAGE_BYTES,
    maxChunkCount: MAX_MESSAGE_BYTES / 8_192,
    receiveBufferSize: MAX_CHUNK_BYTES,
    sendBufferSize: MAX_CHUNK_BYTES,
  },
  transportFactory: {
    create: (settings) => new BoundedTransport(settings),
  } satisfies IClientTransportFactory,
};

export function createClient(
  { certFile, keyFile, applicationUri }: OwnCertificate,
  trust: TrustFolder,
  options: OPCUAClientOptions = {},
): OPCUAClient {
  return OPCUAClient.create({
    applicationName: 'tagferry',
    applicationUri,
    certificateFile: certFile,
    privateKeyFile: keyFile,
    clientCertificateManager: trust.asStore(),
    // Servers announce internal addresses, which a gateway behind a router cannot reach.
    endpointMustExist: false,
    connectionStrategy: { maxRetry: 0 },
    ...BOUNDED_TRANSPORT,
    transportTimeout: RESPONSE_MS,
    defaultTransactionTimeout: RESPONSE_MS,
    ...options,
  });
}
