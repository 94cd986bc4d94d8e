import { randomInt } from 'node:crypto';
import { createSocket, type Socket } from 'node:dgram';
import { once } from 'node:events';

/**
 * Name server that never responds. It listens on port 53 of a dedicated loopback address, because resolv.conf has no
 * port setting.
 */
export class SilentNameServer {
  /** Requested names. */
  readonly asked = new Set<string>();
  readonly address: string;
  readonly #socket: Socket;

  private constructor(socket: Socket, address: string) {
    this.#socket = socket;
    this.address = address;
    socket.on('message', (packet) => this.asked.add(nameIn(packet)));
  }

  static async open(): Promise<SilentNameServer> {
    const socket = createSocket('udp4');
    const address = `127.53.${randomInt(256)}.${randomInt(1, 255)}`;
    socket.bind(53, address);
    await once(socket, 'listening');
    return new SilentNameServer(socket, address);
  }

  close(): void {
    this.#socket.close();
  }
}

/** Name in the first question. */
function nameIn(packet: Buffer): string {
  const labels = [];
  for (let at = 12; packet[at]; at += packet[at]! + 1)
    labels.push(packet.toString('latin1', at + 1, at + 1 + packet[at]!));
  return labels.join('.');
}
