import type { Clock } from '../base/clock.ts';
import type { Logger } from '../base/logger.ts';
import type { OutgoingBuffer } from '../buffer/client/lanes.ts';
import type { Settings } from '../config/settings.ts';
import type { Metrics } from '../ops/metrics.ts';
import type { AccessPort, AddressPort } from '../uplink/ports.ts';
import { compressing } from '../uplink/post.ts';
import { Uplink, type UplinkOptions } from '../uplink/uplink.ts';
import type { PlatformFlow } from './platform-flow.ts';

export interface AgentUplinkOptions {
  settings: Settings;
  buffer: OutgoingBuffer;
  access: AccessPort;
  addresses: AddressPort;
  platform: Pick<PlatformFlow, 'client' | 'budget'>;
  clock: Clock;
  log: Logger;
  metrics: Metrics;
  /** Called when the platform has accepted a post. */
  onAccepted?(asset: number, instrumentation: number | undefined): void;
  /** Called with the time between acceptance and delivery of live values, in milliseconds. */
  onLiveDelivered?(waitedMs: number): void;
}

/** Creates the uplink for an open buffer, with metrics. */
export function makeUplink(options: AgentUplinkOptions): Uplink {
  const { settings, platform, metrics, onAccepted, onLiveDelivered, ...parts } = options;
  const { client, budget } = platform;
  const hooks = {
    posted: (outcome: string) => metrics.posts.inc({ outcome }),
    accepted: (asset: number, instrumentation: number | undefined) => onAccepted?.(asset, instrumentation),
    delivered: (values: number, waitedMs: number | undefined) => {
      metrics.delivered.inc({}, values);
      if (waitedMs !== undefined) onLiveDelivered?.(waitedMs);
    },
    quarantined: (reason: string, values: number) => metrics.quarantined.inc({ reason }, values),
  };
  const posting = settings.postGzip ? compressing(client) : client;
  return new Uplink({ ...parts, client: posting, budget, hooks }, uplinkPace(settings));
}

/** Returns the uplink options in agent.env, which a reload can change. */
export function uplinkPace(settings: Settings): UplinkOptions {
  const { postIntervalMs, postMaxValues, postMaxBytes, drainOrder, backfillValuesPerSecond } = settings;
  return {
    postIntervalMs,
    postMaxValues,
    postMaxBytes,
    success: settings.postSuccess,
    concurrency: settings.postConcurrency,
    drainOrder,
    backfillValuesPerSecond,
  };
}
