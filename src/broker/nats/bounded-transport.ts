/** Transport for the NATS client with size limits for all server data. */
import type { ServerInfo } from '@nats-io/transport-node';
import { NodeTransport } from '@nats-io/transport-node/lib/node_transport.js';
import { BrokerError } from '../broker-error.ts';
import { MAX_LINE_BYTES, NatsFraming } from './nats-framing.ts';

export class BoundedTransport extends NodeTransport {
  readonly #framing = new NatsFraming();

  /** Reads the server's first line, before TLS. */
  override peekInfo(): Promise<ServerInfo> {
    let bytes = 0;
    this.socket.on('data', (chunk: Buffer) => {
      bytes += chunk.length;
      if (bytes > MAX_LINE_BYTES)
        this.socket.destroy(new BrokerError('the server sent no INFO', { code: 'broker.malformed' }));
    });
    return super.peekInfo();
  }

  override async *iterate(): AsyncIterableIterator<Uint8Array> {
    let reason: Error | undefined;
    try {
      for await (const chunk of super.iterate()) yield* this.#framing.push(chunk);
    } catch (error) {
      reason = error as Error;
    } finally {
      // The client stops reading when its parser fails. Close the connection, or unread chunks would accumulate.
      void this.close(reason);
    }
  }
}
