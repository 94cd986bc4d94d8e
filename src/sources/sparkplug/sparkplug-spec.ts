import type { BrokerSpec } from '../../broker/broker-spec.ts';

export interface SparkplugSpec extends BrokerSpec {
  /** Left out: every group. */
  group?: string;
  /** A node whose values cannot be told from one another is asked for its birth certificate. */
  rebirth: boolean;
}

export interface SparkplugValue {
  /** `edge-node/device/metric name`, or `edge-node/metric name`. */
  metric: string;
}

/** The edge node that a metric belongs to. */
export function nodeOf(metric: string): string {
  return metric.slice(0, metric.indexOf('/'));
}
