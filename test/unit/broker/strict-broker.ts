import { once } from 'node:events';
import { type AddressInfo, createServer, type Server, type Socket } from 'node:net';
import mqtt, { type IConnectPacket, type ISubscribePacket, type Packet } from 'mqtt-packet';

/** Written from the MQTT 5 and 3.1.1 specifications. Shares only the packet parser with the agent. */
interface Delivery {
  topic: string;
  payload: string;
  qos: 0 | 1 | 2;
  retain: boolean;
}

interface Session {
  filters: Map<string, 0 | 1 | 2>;
  queue: Delivery[];
  /** By packet id, in order of first delivery. */
  unconfirmed: Map<number, Delivery & { isReleased: boolean }>;
  socket: Socket | undefined;
  version: 4 | 5;
  /** Receive maximum of the client (MQTT 5). */
  allowed: number;
}

/**
 * Strict broker: in-flight window of 20, lowest free packet ID (reused immediately), redelivery with DUP in a resumed
 * session, persistent sessions, retained messages. Records protocol errors of clients.
 */
export class StrictBroker {
  readonly #window: number;
  /** Receive maximum for publishes of a client. */
  readonly #receiveMaximum: number | undefined;
  /** Properties of CONNACK. */
  readonly #properties: object;
  readonly #server: Server;
  readonly #sessions = new Map<string, Session>();
  readonly #retained = new Map<string, Delivery>();
  readonly #sockets = new Set<Socket>();
  /** Subscribed (+) and unsubscribed (-) filters, in order of arrival. */
  readonly asked: string[] = [];
  /** Protocol errors of clients. */
  readonly wrong: string[] = [];
  redelivered = 0;
  confirmed = 0;
  pings = 0;
  /** Filters that are rejected. */
  readonly forbidden = new Set<string>();
  /** Filters whose SUBSCRIBE closes the connection. */
  readonly closesOn = new Set<string>();
  /** Filters whose SUBSCRIBE has no response. */
  readonly silentOn = new Set<string>();
  /** Number of connections. */
  connections = 0;

  /** Versions that it supports. */
  speaks: readonly number[];
  /** Closes each connection at CONNECT, without a response. */
  hangsUp = false;
  /** Packets without a response. */
  readonly unanswered = new Set<Packet['cmd']>();
  /** Versions of the CONNECT packets, in order of arrival. */
  readonly versions: number[] = [];
  /** Publishes of clients, in order of arrival. */
  readonly published: { topic: string; payload: string; retain: boolean }[] = [];
  /** Publishes of clients without a PUBACK. */
  heldPublishes: { socket: Socket; messageId: number }[] = [];

  constructor({
    window = 20,
    speaks = [4, 5],
    receiveMaximum,
    maximumPacketSize,
  }: { window?: number; speaks?: readonly number[]; receiveMaximum?: number; maximumPacketSize?: number } = {}) {
    this.#window = window;
    this.speaks = speaks;
    this.#receiveMaximum = receiveMaximum;
    this.#properties = { ...(receiveMaximum && { receiveMaximum }), ...(maximumPacketSize && { maximumPacketSize }) };
    this.#server = createServer((socket) => this.#serve(socket));
  }

  async start(): Promise<number> {
    this.#server.listen(0, '127.0.0.1');
    await once(this.#server, 'listening');
    return (this.#server.address() as AddressInfo).port;
  }

  async stop(): Promise<void> {
    this.cut();
    await new Promise((resolve) => this.#server.close(resolve));
  }

  /** Breaks every connection. Sessions remain. */
  cut(): void {
    for (const socket of this.#sockets) socket.destroy();
  }

  /** Removes the sessions, like a killed broker without persistent sessions. Retained messages remain. */
  forget(): void {
    this.#sessions.clear();
    this.cut();
  }

  /** Replaces the filters of all sessions, like a broker that restarts with an older persistence file. */
  restore(filters: readonly string[]): void {
    for (const session of this.#sessions.values()) session.filters = new Map(filters.map((filter) => [filter, 1]));
    this.cut();
  }

  get connected(): number {
    return [...this.#sessions.values()].filter(({ socket }) => socket !== undefined).length;
  }

  /** Filters of all sessions. */
  get filters(): string[] {
    return [...this.#sessions.values()].flatMap(({ filters }) => [...filters.keys()]).sort();
  }

  /** Number of queued and unacknowledged messages. */
  get pending(): number {
    return [...this.#sessions.values()].reduce(
      (sum, { queue, unconfirmed }) => sum + queue.length + unconfirmed.size,
      0,
    );
  }

  publish(
    topic: string,
    payload: string,
    { qos = 1, retain = false }: { qos?: 0 | 1 | 2; retain?: boolean } = {},
  ): void {
    const delivery = { topic, payload, qos, retain: false };
    if (retain) this.#retained.set(topic, { ...delivery, retain: true });
    for (const session of this.#sessions.values()) {
      const granted = [...session.filters].filter(([filter]) => fits(filter, topic)).map(([, max]) => max);
      if (granted.length > 0) this.#deliver(session, { ...delivery, qos: Math.min(qos, ...granted) as 0 | 1 | 2 });
    }
  }

  #deliver(session: Session, delivery: Delivery): void {
    if (delivery.qos === 0 && !session.socket) return;
    session.queue.push(delivery);
    this.#pump(session);
  }

  #pump(session: Session): void {
    while (session.socket && session.queue.length > 0) {
      const [next] = session.queue as [Delivery];
      if (next.qos > 0 && session.unconfirmed.size >= Math.min(this.#window, session.allowed)) return;
      session.queue.shift();
      if (next.qos === 0) this.#send(session, { cmd: 'publish', dup: false, ...next });
      else {
        let messageId = 1;
        while (session.unconfirmed.has(messageId)) messageId++;
        session.unconfirmed.set(messageId, { ...next, isReleased: false });
        this.#send(session, { cmd: 'publish', dup: false, messageId, ...next });
      }
    }
  }

  #send(session: Session, packet: object): void {
    if (!session.socket?.writable) return;
    session.socket.write(mqtt.generate(packet as Packet, { protocolVersion: session.version }));
  }

  #serve(socket: Socket): void {
    this.#sockets.add(socket);
    this.connections++;
    socket.on('error', () => {});
    let session: Session | undefined;
    const parser = mqtt.parser();
    parser.on('error', (error: Error) => {
      this.wrong.push(`sent an unreadable packet: ${error.message}`);
      socket.destroy();
    });
    parser.on('packet', (packet) => {
      if (packet.cmd === 'connect') session = this.#greet(packet, socket);
      else if (session) this.#hear(session, packet);
    });
    socket.on('data', (bytes) => parser.parse(bytes));
    socket.on('close', () => {
      this.#sockets.delete(socket);
      if (session?.socket === socket) session.socket = undefined;
    });
  }

  #greet(packet: IConnectPacket, socket: Socket): Session | undefined {
    const version = packet.protocolVersion as 4 | 5;
    this.versions.push(version);
    if (this.hangsUp) {
      socket.destroy();
      return undefined;
    }
    if (!this.speaks.includes(version)) {
      // A 3.1.1 broker rejects other versions in 3.1.1.
      socket.end(Buffer.from([0x20, 2, 0, 1]));
      return undefined;
    }
    const before = this.#sessions.get(packet.clientId);
    if (before?.version === 5) this.#send(before, { cmd: 'disconnect', reasonCode: 0x8e });
    before?.socket?.end();
    if (packet.clean) this.#sessions.delete(packet.clientId);
    const known = packet.clean ? undefined : before;
    const session = known ?? { filters: new Map(), queue: [], unconfirmed: new Map(), socket, version, allowed: 0 };
    session.socket = socket;
    session.version = version;
    session.allowed = packet.properties?.receiveMaximum ?? 65_535;
    this.#sessions.set(packet.clientId, session);
    const sessionPresent = known !== undefined;
    const verdict = version === 5 ? { reasonCode: 0, properties: this.#properties } : { returnCode: 0 };
    this.#send(session, { cmd: 'connack', sessionPresent, ...verdict });
    for (const [messageId, delivery] of session.unconfirmed) {
      if (delivery.isReleased) this.#send(session, { cmd: 'pubrel', messageId });
      else {
        this.redelivered++;
        this.#send(session, { cmd: 'publish', dup: true, messageId, ...delivery });
      }
    }
    this.#pump(session);
    return session;
  }

  #hear(session: Session, packet: Packet): void {
    const { messageId } = packet;
    if (packet.cmd === 'publish' && packet.qos === 1) this.#countPublish(session.socket!, messageId!);
    if (this.unanswered.has(packet.cmd)) return;
    if (packet.cmd === 'subscribe') this.#subscribe(session, packet);
    else if (packet.cmd === 'unsubscribe') {
      for (const filter of packet.unsubscriptions) {
        this.asked.push(`-${filter}`);
        session.filters.delete(filter);
      }
      this.#send(session, { cmd: 'unsuback', messageId, granted: packet.unsubscriptions.map(() => 0) });
    } else if (packet.cmd === 'publish') {
      const { topic, payload, retain } = packet;
      this.published.push({ topic, payload: String(payload), retain });
      this.publish(packet.topic, String(packet.payload), { qos: packet.qos, retain: packet.retain });
      if (packet.qos === 1) this.#confirmPublish(session, messageId!);
    } else if (packet.cmd === 'puback') this.#confirm(session, messageId!, 1);
    else if (packet.cmd === 'pubrec') {
      this.#confirm(session, messageId!, 2);
      this.#send(session, { cmd: 'pubrel', messageId });
    } else if (packet.cmd === 'pubcomp') {
      session.unconfirmed.delete(messageId!);
      this.#pump(session);
    } else if (packet.cmd === 'pingreq') {
      this.pings++;
      this.#send(session, { cmd: 'pingresp' });
    }
  }

  /** Disconnects a client that exceeds the receive maximum (MQTT 5, 0x93). */
  #countPublish(socket: Socket, messageId: number): void {
    const held = this.heldPublishes.filter((one) => one.socket === socket);
    if (held.length >= (this.#receiveMaximum ?? 65_535)) {
      this.wrong.push('exceeded the receive maximum');
      socket.destroy();
    }
    this.heldPublishes.push({ socket, messageId });
  }

  #confirmPublish(session: Session, messageId: number): void {
    this.heldPublishes = this.heldPublishes.filter((one) => one.messageId !== messageId);
    this.#send(session, { cmd: 'puback', messageId });
  }

  /** Acknowledges all pending publishes. */
  confirmHeld(): void {
    for (const { messageId } of this.heldPublishes) {
      for (const session of this.#sessions.values()) this.#confirmPublish(session, messageId);
    }
  }

  #confirm(session: Session, messageId: number, qos: 1 | 2): void {
    const delivery = session.unconfirmed.get(messageId);
    const first = [...session.unconfirmed].find(([, one]) => !one.isReleased);
    if (!delivery || delivery.qos !== qos) this.wrong.push(`confirmed ${messageId}, which was not sent`);
    else if (first?.[0] !== messageId) this.wrong.push(`confirmed ${messageId} before ${first?.[0]}`);
    this.confirmed++;
    if (qos === 2 && delivery) delivery.isReleased = true;
    else session.unconfirmed.delete(messageId);
    this.#pump(session);
  }

  #subscribe(session: Session, packet: ISubscribePacket): void {
    const { messageId, subscriptions } = packet;
    const fresh: string[] = [];
    if (subscriptions.some(({ topic }) => this.closesOn.has(topic))) {
      session.socket?.destroy();
      return;
    }
    if (subscriptions.some(({ topic }) => this.silentOn.has(topic))) return;
    const granted = subscriptions.map(({ topic, qos, rh }) => {
      this.asked.push(`+${topic}`);
      if (this.forbidden.has(topic)) return session.version === 5 ? 0x87 : 0x80;
      if (!session.filters.has(topic) || rh !== 1) fresh.push(topic);
      session.filters.set(topic, qos);
      return qos;
    });
    this.#send(session, { cmd: 'suback', messageId, granted });
    for (const filter of fresh) {
      for (const [topic, delivery] of this.#retained) if (fits(filter, topic)) this.#deliver(session, delivery);
    }
  }
}

function fits(filter: string, topic: string): boolean {
  const pattern = filter
    .split('/')
    .map((level) => (level === '+' ? '[^/]*' : level === '#' ? '.*' : level.replaceAll(/[.*+?^${}()|[\]\\]/g, '\\$&')))
    .join('/')
    .replace(/\/\.\*$/, '(/.*)?');
  return new RegExp(`^${pattern}$`).test(topic);
}
