export type TimeUnit = 's' | 'ms' | 'us' | 'ns';

export interface MqttValue {
  /** May hold `+` and `#`. */
  topic: string;
  /** The topic as it stands in tags.yaml, `{tag}` not filled in: what many tags have in common. */
  template: string;
  /** JSON pointers (RFC 6901); no `at`: the whole message is the number. */
  at?: string;
  time?: string;
  /** A user property of MQTT 5, in lower case. */
  timeProperty?: string;
  timeUnit?: TimeUnit;
  status?: string;
}
