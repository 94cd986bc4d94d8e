import type { MqttValue } from '../mqtt/mqtt-value.ts';

/** Read as a value of MQTT: `topic` is the subject told as one (`asTopic`). */
export interface NatsValue extends MqttValue {
  /** As tags.yaml has it; may hold `*` and `>`. */
  subject: string;
}
