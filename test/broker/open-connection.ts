import type { NatsConnection } from '@nats-io/transport-node';

/** A connection to NATS that stands until it is told otherwise, and carries nothing. */
export function openConnection(): { connection: NatsConnection; close(): void } {
  let isClosed = false;
  const connection = { isClosed: () => isClosed, flush: async () => {}, close: async () => {} };
  return {
    connection: connection as unknown as NatsConnection,
    close: () => {
      isClosed = true;
    },
  };
}
