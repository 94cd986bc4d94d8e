/** What the page shows: the files that were built, and the stream with its topics. */
import { hostname } from 'node:os';
import type { Clock } from '../base/clock.ts';
import { PageFiles } from '../base/inbound/page-files.ts';
import { BUILT_PAGES } from '../base/installation.ts';
import type { Logger } from '../base/logger.ts';
import { gatewayZone } from '../ops/live/gateway-zone.ts';
import { type Feed, frame, LiveStream } from '../ops/live/live-stream.ts';
import type { StatusReport } from '../ops/status-report.ts';

export interface LiveFlowOptions {
  version: string;
  startedWallMs: number;
  status(): Promise<StatusReport>;
  /** Asks for what counts against the quota, where that is due. */
  refreshQuota(): Promise<void>;
  clock: Clock;
  log: Logger;
}

export class LiveFlow {
  readonly page = new PageFiles(new URL('gateway/', BUILT_PAGES));
  readonly live: LiveStream;

  constructor(options: LiveFlowOptions) {
    const { version, startedWallMs, clock, log } = options;
    this.live = new LiveStream({
      feeds: { now: nowFeed(options) },
      hello: () => ({ version, gateway: hostname(), startedMs: startedWallMs, zone: gatewayZone(clock.wallMs()) }),
      position: () => ({ second: 0, line: 0 }),
      clock,
      log,
    });
  }
}

/** The status, as `/status` shows it. */
function nowFeed({ status, refreshQuota }: Pick<LiveFlowOptions, 'status' | 'refreshQuota'>): Feed {
  const now = async () => [frame('now', await status())];
  return {
    begin: () => {
      void refreshQuota();
      return now();
    },
    next: now,
  };
}
