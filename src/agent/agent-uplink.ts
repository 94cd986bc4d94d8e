import { promisify } from 'node:util';
import { gzip } from 'node:zlib';
import type { Clock } from '../base/clock.ts';
import type { Logger } from '../base/logger.ts';
import type { OutgoingBuffer } from '../buffer/client/lanes.ts';
import type { Settings } from '../config/settings.ts';
import type { Metrics } from '../ops/metrics.ts';
import type { ValuesClient } from '../uplink/deliver.ts';
import type { Holds } from '../uplink/holds.ts';
import type { PostAddresses } from '../uplink/post-address.ts';
import { Uplink, type UplinkOptions } from '../uplink/uplink.ts';
import type { PlatformFlow } from './platform-flow.ts';

export interface AgentUplinkOptions {
  settings: Settings;
  buffer: OutgoingBuffer;
  holds: Holds;
  addresses: PostAddresses;
  platform: Pick<PlatformFlow, 'client' | 'budget'>;
  clock: Clock;
  log: Logger;
  metrics: Metrics;
  /** Called when the platform has accepted a post. */
  onAccepted?(asset: number, instrumentation: number | undefined): void;
  /** Called with the time between acceptance and delivery of live values, in milliseconds. */
  onLiveDelivered?(waitedMs: number): void;
  /** Called after each outage. */
  onRestored?(): void;
}

/** Creates the uplink for an open buffer, with metrics. */
export function makeUplink(options: AgentUplinkOptions): Uplink {
  const { settings, platform, metrics, onAccepted, onLiveDelivered, onRestored, ...parts } = options;
  const { client, budget } = platform;
  const hooks = {
    posted: (outcome: string) => metrics.posts.inc({ outcome }),
    accepted: (asset: number, instrumentation: number | undefined) => onAccepted?.(asset, instrumentation),
    delivered: (values: number, waitedMs: number | undefined) => {
      metrics.delivered.inc({}, values);
      if (waitedMs !== undefined) onLiveDelivered?.(waitedMs);
    },
    quarantined: (reason: string, values: number) => metrics.quarantined.inc({ reason }, values),
    restored: () => onRestored?.(),
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

const compress = promisify(gzip);
/** The fastest level reduces the size of readings by 90 %. Higher levels save little more and take twice as long. */
const LEVEL = 1;

/**
 * Compresses bodies (POST_GZIP) for links that are billed per byte. Off by default, because the platform does not
 * document that it accepts compressed bodies. POST_MAX_BYTES limits the uncompressed body.
 */
function compressing(client: ValuesClient): ValuesClient {
  return {
    async request(call) {
      const body = await compress(call.body, { level: LEVEL });
      return client.request({ ...call, body, headers: { ...call.headers, 'content-encoding': 'gzip' } });
    },
  };
}
