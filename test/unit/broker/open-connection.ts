import type { NatsConnection } from '@nats-io/transport-node';

/** Returns a NATS connection without messages that stays open until `close` is called. */
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
