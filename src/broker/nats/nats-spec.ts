/** How a NATS server, or a cluster, of tags.yaml is reached. Files are read at each connection: what was renewed counts at once. */
export interface NatsSpec {
  /** `nats://` or `tls://`, one or several of a cluster; may hold user and password, never logged. */
  servers: readonly string[];
  /** JetStream's stream; left out, the one that keeps what is subscribed to. */
  stream?: string;
  /** The durable consumer: agents that name the same one share its messages. Left out: one of this gateway's own. */
  durable?: string;
  /** How long the server waits for an acknowledgement before it gives a message to another (of a consumer that is made here). */
  ackWaitMs: number;
  /** One agent at a time, values in their order, over crashes too. */
  ordered: boolean;
  username?: string;
  passwordFile?: string;
  /** A `.creds` file, as nsc writes it. */
  credsFile?: string;
  /** PEM of a private authority; else PLATFORM_CA, else the system's. */
  caFile?: string;
  certFile?: string;
  keyFile?: string;
}
