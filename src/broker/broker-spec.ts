/**
 * Settings of an MQTT broker in tags.yaml. Files are read for each connection, so a renewed certificate applies to the
 * next connection.
 */
export interface BrokerSpec {
  /** `mqtt://`, `mqtts://`, `ws://` or `wss://`; may contain a user and password, so it is never logged. */
  url: string;
  /** Version 5 falls back to 3 (3.1.1) if the broker does not support it. */
  version: 5 | 3;
  /** QoS of the subscriptions. */
  qos: 0 | 1 | 2;
  /** Duration for which the broker keeps the session of a disconnected client (MQTT 5), in milliseconds. */
  sessionExpiryMs: number;
  username?: string;
  passwordFile?: string;
  /** PEM file of a private CA. Default: PLATFORM_CA, then the system CAs. */
  caFile?: string;
  certFile?: string;
  keyFile?: string;
  /** Client ID of the broker session. Stable across restarts and unique per gateway. */
  clientId?: string;
  /** Whether retained messages without a time of their own are stored with the time of arrival. Default: skipped. */
  retained?: 'take';
  /** Group of clients that share the messages. */
  share?: string;
  /**
   * Topic on which a Sparkplug host application publishes its state, including through its will (Eclipse Sparkplug 3.0,
   * chapter 5.9).
   */
  presence?: string;
}
