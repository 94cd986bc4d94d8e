/** How an MQTT broker of tags.yaml is reached and asked. Files are read at each connection: a renewed certificate counts at once. */
export interface BrokerSpec {
  /** `mqtt://`, `mqtts://`, `ws://`, `wss://`; may hold user and password, never logged. */
  url: string;
  /** 5 falls back to 3 (3.1.1) where the broker does not speak it. */
  version: 5 | 3;
  /** Of the subscriptions. */
  qos: 0 | 1 | 2;
  /** How long the broker keeps the session of a client that is away (MQTT 5). */
  sessionExpiryMs: number;
  username?: string;
  passwordFile?: string;
  /** PEM of a private authority; else PLATFORM_CA, else the system's. */
  caFile?: string;
  certFile?: string;
  keyFile?: string;
  /** The same at every start and different on every gateway: the broker keeps the session under it. */
  clientId?: string;
  /** The group that shares the messages. */
  share?: string;
  /** Where a Sparkplug host application says whether it is there; also by its will (Eclipse Sparkplug 3.0, chapter 5.9). */
  presence?: string;
}
