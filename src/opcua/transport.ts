/** The connection to a server, bounded in what the server may send: node-opcua itself takes the bounds from the server's Acknowledge. */
import type { IClientTransportFactory } from 'node-opcua-transport';
import { ClientTCP_transport } from 'node-opcua-transport';

/**
 * Maximum size of a message, in bytes, checked chunk by chunk before anything is decoded. A value takes 7 to 22 bytes in a message and up to
 * 300 bytes of memory, so the largest message needs some 30 MB.
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
      // Bounded by the size of the message; 0 stands for the default of node-opcua.
      maxChunkCount,
    });
  }
}

/** 0 means that the server names no limit. */
function bounded(limit: number, most: number): number {
  return limit === 0 ? most : Math.min(limit, most);
}

/** What a client asks of the server in its Hello, and what it enforces. */
export const BOUNDED_TRANSPORT = {
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
