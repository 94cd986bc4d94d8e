import { once } from 'node:events';
import { type AddressInfo, connect, createServer, type Server, type Socket } from 'node:net';
import mqtt from 'mqtt-packet';

/**
 * The way between a client and its broker, which reads along: what the broker gave, and what of it the client has confirmed. Says
 * what is the client's to keep, whatever a broker that is killed forgets.
 */
export class WatchedWay {
  readonly #server: Server;
  readonly #sockets = new Set<Socket>();
  /** Of messages that the client has confirmed, by what they say: how often. */
  readonly confirmed = new Map<string, number>();
  /** Messages of which the broker has forgotten that it gave them, or that they were confirmed: they came again as if they had not. */
  readonly forgotten = new Set<string>();
  /** Messages that came again with DUP, and were not confirmed yet. */
  redelivered = 0;
  readonly #given = new Set<string>();

  constructor(brokerPort: number) {
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
    const given = new Map<number, string>();
    const up = mqtt.parser();
    let down: mqtt.Parser | undefined;
    const hear = (packet: mqtt.Packet) => {
      if (packet.cmd !== 'publish' || packet.messageId === undefined) return;
      // Sparkplug payloads are binary: UTF-8 would map different payloads to the same text.
      const text = packet.payload.toString('latin1');
      if (this.confirmed.has(text) || (this.#given.has(text) && !packet.dup)) this.forgotten.add(text);
      else if (packet.dup) this.redelivered++;
      this.#given.add(text);
      given.set(packet.messageId, text);
    };
    up.on('packet', (packet) => {
      // In which version the broker answers.
      if (packet.cmd === 'connect') {
        down = mqtt.parser({ protocolVersion: packet.protocolVersion ?? 4 }).on('packet', hear);
      }
      const text = packet.cmd === 'puback' ? given.get(packet.messageId!) : undefined;
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
        // Not at once: what the other side has sent by then is read.
        to.end();
      });
    }
  }
}
