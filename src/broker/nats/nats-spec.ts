/**
 * Settings of a NATS server or cluster in tags.yaml. Files are read for each connection, so changes apply to the next
 * connection.
 */
export interface NatsSpec {
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
  username?: string;
  passwordFile?: string;
  /** A `.creds` file created by nsc. */
  credsFile?: string;
  /** PEM file of a private CA. Default: PLATFORM_CA, then the system CAs. */
  caFile?: string;
  certFile?: string;
  keyFile?: string;
}
