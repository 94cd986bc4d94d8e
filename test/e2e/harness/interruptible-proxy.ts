import { once } from 'node:events';
import { type AddressInfo, connect, createServer, type Server, type Socket } from 'node:net';

/**
 * Proxy between a client and its server. While the connection is cut, the proxy forwards nothing and closes no
 * connection.
 */
export class InterruptibleProxy {
  readonly #server: Server;
  readonly #sockets = new Set<Socket>();
  #isCut = false;

  constructor(serverPort: number) {
    this.#server = createServer((client) => {
      // New connections during a cut receive nothing, and are closed when the connection is restored.
      if (this.#isCut) return this.#keep(client.pause());
      const server = connect(serverPort, '127.0.0.1');
      this.#join(client, server);
      this.#join(server, client);
    });
  }

  async start(): Promise<number> {
    this.#server.listen(0, '127.0.0.1');
    await once(this.#server, 'listening');
    return (this.#server.address() as AddressInfo).port;
  }

  cut(): void {
    this.#isCut = true;
    for (const socket of this.#sockets) socket.pause();
  }

  /** Closes all connections of both sides. Pending bytes are lost. */
  restore(): void {
    this.#isCut = false;
    for (const socket of this.#sockets) socket.destroy();
  }

  async stop(): Promise<void> {
    for (const socket of this.#sockets) socket.destroy();
    await new Promise((resolve) => this.#server.close(resolve));
  }

  #join(from: Socket, to: Socket): void {
    this.#keep(from);
    from.on('data', (bytes) => to.write(bytes));
    from.on('end', () => to.end());
    from.on('close', () => {
      if (!this.#isCut) to.destroy();
    });
  }

  #keep(socket: Socket): void {
    this.#sockets.add(socket);
    socket.setNoDelay();
    socket.on('error', () => {});
    socket.on('close', () => this.#sockets.delete(socket));
  }
}
