import { once } from 'node:events';
import { type AddressInfo, connect, createServer, type Server, type Socket } from 'node:net';
import mqtt from 'mqtt-packet';

/**
 * Proxy between a client and its broker that records delivered and acknowledged messages. Its record of
 * acknowledgements remains valid even if a killed broker loses them. With `forbidden`, it closes each connection on which
 * a client subscribes to this topic, like a broker in a cloud.
 */
export class RecordingProxy {
  readonly #server: Server;
  readonly #sockets = new Set<Socket>();
  /** Number of acknowledgements by payload. */
  readonly confirmed = new Map<string, number>();
  /** Number of unacknowledged messages that were redelivered with DUP. */
  redelivered = 0;

  readonly #forbidden: string | undefined;

  constructor(brokerPort: number, { forbidden }: { forbidden?: string } = {}) {
    this.#forbidden = forbidden;
    this.#server = createServer((client) => this.#join(client, connect(brokerPort, '127.0.0.1')));
  }

  async start(): Promise<number> {
    this.#server.listen(0, '127.0.0.1');
    await once(this.#server, 'listening');
    return (this.#server.address() as AddressInfo).port;
  }

  async stop(): Promise<void> {
    for (const socket of this.#sockets) socket.destroy();
    await new Promise((resolve) => this.#server.close(resolve));
  }

  #join(client: Socket, broker: Socket): void {
    const sent = new Map<number, string>();
    const up = mqtt.parser();
    let down: mqtt.Parser | undefined;
    const hear = (packet: mqtt.Packet) => {
      if (packet.cmd !== 'publish' || packet.messageId === undefined) return;
      // Sparkplug payloads are binary: UTF-8 would map different payloads to the same text.
      const text = packet.payload.toString('latin1');
      if (packet.dup && !this.confirmed.has(text)) this.redelivered++;
      sent.set(packet.messageId, text);
    };
    up.on('packet', (packet) => {
      // The broker responds in the client's version.
      if (packet.cmd === 'connect') {
        down = mqtt.parser({ protocolVersion: packet.protocolVersion ?? 4 }).on('packet', hear);
      }
      if (packet.cmd === 'subscribe' && packet.subscriptions.some(({ topic }) => topic === this.#forbidden)) {
        client.destroy();
        broker.destroy();
      }
      // A client acknowledges a QoS 2 message with PUBREC.
      const text = packet.cmd === 'puback' || packet.cmd === 'pubrec' ? sent.get(packet.messageId!) : undefined;
      if (text !== undefined) this.confirmed.set(text, (this.confirmed.get(text) ?? 0) + 1);
    });
    for (const [from, to, parse] of [
      [client, broker, (bytes: Buffer) => up.parse(bytes)],
      [broker, client, (bytes: Buffer) => down?.parse(bytes)],
    ] as const) {
      this.#sockets.add(from);
      from.setNoDelay();
      from.on('data', (bytes) => {
        parse(bytes);
        to.write(bytes);
      });
      from.on('error', () => {});
      from.on('close', () => {
        this.#sockets.delete(from);
        // Half-closed, so that data sent by the other side is still read.
        to.end();
      });
    }
  }
}
