import type { Clock } from '../base/clock.ts';
import type { Logger } from '../base/logger.ts';
import type { OutgoingBuffer } from '../buffer/client/lanes.ts';
import type { Settings } from '../config/settings.ts';
import type { Metrics } from '../ops/metrics.ts';
import { compressing } from '../uplink/compression.ts';
import type { AccessPort, AddressPort } from '../uplink/ports.ts';
import { Uplink } from '../uplink/uplink.ts';
import { uplinkPace } from './pace.ts';
import type { PlatformFlow } from './platform-flow.ts';

export interface UplinkMakingOptions {
  settings: Settings;
  buffer: OutgoingBuffer;
  access: AccessPort;
  addresses: AddressPort;
  platform: Pick<PlatformFlow, 'client' | 'budget'>;
  clock: Clock;
  log: Logger;
  metrics: Metrics;
  /** The platform accepted a post. */
  onAccepted?(asset: number, instrumentation: number | undefined): void;
  /** How long live values had waited. */
  onLiveDelivered?(waitedMs: number): void;
}

/** The uplink over a buffer that is open, counted in the metrics. */
export function makeUplink({
  settings,
  platform,
  metrics,
  onAccepted,
  onLiveDelivered,
  ...parts
}: UplinkMakingOptions): Uplink {
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
  return new Uplink(
    { ...parts, client: settings.postGzip ? compressing(client) : client, budget, hooks },
    uplinkPace(settings),
  );
}
