/** Settings of a connection in tags.yaml. Files are read for each connection, so changes apply to the next one. */
export interface ConnectionSpec {
  username?: string;
  passwordFile?: string;
  /** PEM file of a private CA. Default: PLATFORM_CA, then the system CAs. */
  caFile?: string;
  certFile?: string;
  keyFile?: string;
}

/** How devices announce that they are offline. Texts are in lower case. */
export interface Availability {
  topic?: string;
  /** Default: `online`. */
  available?: string;
  /** Default: `offline`. */
  unavailable?: string;
}

/** Settings of an MQTT broker in tags.yaml. */
export interface BrokerSpec extends ConnectionSpec {
  /** `mqtt://`, `mqtts://`, `ws://` or `wss://`; may contain a user and password, so it is never logged. */
  url: string;
  /** Version 5 falls back to 3 (3.1.1) if the broker does not support it. */
  version: 5 | 3;
  /** QoS of the subscriptions. */
  qos: 0 | 1 | 2;
  /** Duration for which the broker keeps the session of a disconnected client (MQTT 5), in milliseconds. */
  sessionExpiryMs: number;
  /** Client ID of the broker session. Stable across restarts and unique per gateway. */
  clientId?: string;
  /** Whether retained messages without a time of their own are stored with the time of arrival. Default: skipped. */
  retained?: 'take';
  /** Group of clients that share the messages. */
  share?: string;
  /** Time zone of message timestamps without a UTC offset. */
  zone?: string;
  /** Default for values. */
  availability?: Availability;
  /**
   * Topic on which a Sparkplug host application publishes its state, including through its will (Eclipse Sparkplug 3.0,
   * chapter 5.9).
   */
  presence?: string;
}

/** Settings of a NATS server or cluster in tags.yaml. */
export interface NatsSpec extends ConnectionSpec {
  /**
   * `nats://` or `tls://`, one or more servers of a cluster; may contain a user and password, so they are never logged.
   */
  servers: readonly string[];
  /** JetStream stream. If omitted, the stream that stores the subjects is used. */
  stream?: string;
  /**
   * Durable consumer. Agents with the same consumer share its messages. If omitted, a consumer is created for this
   * gateway.
   */
  durable?: string;
  /**
   * Time after which the server redelivers an unacknowledged message, for a consumer created here, in milliseconds.
   */
  ackWaitMs: number;
  /** Only one agent pulls at a time, and the order of values is preserved, even after a crash. */
  ordered: boolean;
  /** A `.creds` file created by nsc. */
  credsFile?: string;
  /** Time zone of message timestamps without a UTC offset. */
  zone?: string;
  /** Default for values. */
  availability?: Availability;
}

/** Default ports by protocol. */
export const MQTT_PORTS: Readonly<Record<string, number>> = { 'mqtt:': 1883, 'mqtts:': 8883, 'ws:': 80, 'wss:': 443 };
export const NATS_PORTS: Readonly<Record<string, number>> = { 'nats:': 4222, 'tls:': 4222 };

/** Returns the host (without the brackets of an IPv6 address) and the port (default: that of the protocol). */
export function placeOf(url: string | URL, ports = MQTT_PORTS): { host: string; port: number } {
  const { protocol, hostname, port } = new URL(url);
  return { host: hostname.replace(/^\[(.*)\]$/, '$1'), port: Number(port || ports[protocol]) };
}
