/**
 * Startup with a backlog of more series than fit into memory. Loading all of them would get the agent killed on every
 * startup, and accepted values would never be delivered. The store therefore loads as many series as fit, those with
 * the oldest values first, and the uplink posts them while the listeners respond with 503. The store is then reopened
 * until all remaining series fit.
 *
 * Values that cannot be posted now (held assets, suspended series) stay loaded, and the next round loads additional
 * series. After a crash, startup repeats this procedure.
 */
import type { Clock } from '../base/clock.ts';
import { StoreError } from '../base/errors.ts';
import type { Logger } from '../base/logger.ts';
import type { Settings } from '../config/settings.ts';
import type { Tag } from '../config/tags.ts';
import type { Metrics } from '../ops/metrics.ts';
import { PostAddresses } from '../uplink/post-address.ts';
import { makeUplink } from './agent-uplink.ts';
import type { BufferFlow, ClosedBuffer } from './buffer-flow.ts';
import type { DegradedStart } from './degraded-start.ts';
import { makeHolds } from './events-flow.ts';
import type { PlatformFlow } from './platform-flow.ts';

export interface DrainingStartOptions {
  settings: Settings;
  tags: ReadonlyMap<string, Tag>;
  platform: PlatformFlow;
  waiting: Pick<DegradedStart, 'during'>;
  clock: Clock;
  log: Logger;
  metrics: Metrics;
  /** Starts the first login. Repeated calls have no effect. */
  startSession(): Promise<void>;
  /** Closes the open buffer and returns a new one that is not open yet. */
  renew(): Promise<Pick<ClosedBuffer, 'open'>>;
}

const CHECK_EVERY_MS = 200;
/** Time without a response after which the store counts as stalled. */
const STORE_PATIENCE_MS = 120_000;
const LOG_EVERY_MS = 60_000;
/** Time without progress after which a round ends. The remaining series are blocked, but additional series may fit. */
const STALLED_MS = 60_000;
/** Time limit for pending posts at shutdown. */
const STOP_UPLINK_MS = 10_000;
/**
 * Time limit for pending posts at the end of a round. Longer than the post deadline (`http-boundary.ts`), because an
 * aborted post would be repeated in the next round.
 */
const END_ROUND_MS = 120_000;

/** Returns the buffer with all series loaded, immediately if they fit, or `undefined` if the agent was stopped. */
export async function drainFirst(buffer: BufferFlow, options: DrainingStartOptions): Promise<BufferFlow | undefined> {
  if (buffer.facts.notLoaded === 0) return buffer;
  const { clock, log, waiting } = options;
  const startMs = clock.monotonicMs();
  let rounds = 0;
  let open = buffer;
  const isOver = await waiting.during(drainReason(buffer), async ({ signal, report, untilOpen }) => {
    await options.startSession();
    const reopen = async () => {
      const closed = await options.renew();
      return await untilOpen(() => closed.open());
    };
    for (; open.facts.notLoaded > 0 && !signal.aborted; open = await reopen()) {
      rounds++;
      const fields = { round: rounds, series: open.catalogue.size, values: open.bufferedValues };
      log.warn(
        { event: 'store.draining', ...fields, notLoaded: open.facts.notLoaded },
        'more buffered series than fit in memory, not accepting values until enough of them have been posted',
      );
      await drainRound(open, options, signal, () => report(drainReason(open)));
      if (signal.aborted) return;
    }
  });
  if (!isOver) return undefined;
  const waitedMs = Math.round(clock.monotonicMs() - startMs);
  log.info({ event: 'store.drained', rounds, waitedMs }, 'all series fit in memory, continuing startup');
  return open;
}

/**
 * Posts the loaded values until none are left or none can be posted. Waits until the deliveries are committed,
 * because the next round would otherwise post the values again.
 */
async function drainRound(
  buffer: BufferFlow,
  { settings, tags, platform, clock, log, metrics }: DrainingStartOptions,
  signal: AbortSignal,
  report: () => void,
): Promise<void> {
  const holds = makeHolds({ tags: tags.values(), buffer, clock, log });
  holds.start(await buffer.access.load());
  const addresses = new PostAddresses(buffer.catalogue, settings.valuesPath, tags.values());
  const uplink = makeUplink({
    settings,
    buffer: buffer.outgoing,
    holds,
    addresses,
    platform,
    clock,
    log,
    metrics,
  });
  const { session } = platform;
  const forget = session.onChange(() => session.snapshot().state === 'valid' && uplink.tryNow());
  await uplink.start();
  const first = buffer.bufferedValues;
  let left = first;
  let progressMs = clock.monotonicMs();
  let loggedMs = progressMs;
  // Assets can remain held for weeks, so additional series are loaded.
  const isAllHeld = () => [...buffer.outgoing.lanes().keys()].every((asset) => holds.isHeld(asset));
  const mayReopen = () =>
    !buffer.facts.dirty && left < first && (isAllHeld() || clock.monotonicMs() - progressMs > STALLED_MS);
  try {
    while ((left > 0 || buffer.facts.dirty) && !signal.aborted && !mayReopen()) {
      await clock.sleep(CHECK_EVERY_MS, signal).catch(() => {});
      const nowMs = clock.monotonicMs();
      if (buffer.bufferedValues < left) progressMs = nowMs;
      left = buffer.bufferedValues;
      // Report to the watchdog unless a part is stalled.
      if (buffer.isAlive(nowMs, STORE_PATIENCE_MS) && uplink.isAlive(nowMs)) report();
      if (nowMs - loggedMs < LOG_EVERY_MS) continue;
      loggedMs = nowMs;
      log.info(
        { event: 'store.draining_on', values: left, notLoaded: buffer.facts.notLoaded },
        'posting the backlog before startup continues',
      );
    }
  } finally {
    forget();
    const stopSoon = () => void uplink.stop(STOP_UPLINK_MS);
    signal.addEventListener('abort', stopSoon);
    await uplink.stop(signal.aborted ? STOP_UPLINK_MS : END_ROUND_MS);
    signal.removeEventListener('abort', stopSoon);
  }
}

function drainReason(buffer: BufferFlow): StoreError {
  const { failure } = buffer.committer;
  if (failure) return failure;
  // The message contains no counts, because it is the status reported to systemd, which is sent whenever it changes.
  const message = 'more buffered series than fit in memory';
  const hint =
    `Posting the oldest ${buffer.bufferedValues} values first, ${buffer.facts.notLoaded} series not yet loaded. No values are ` +
    'lost. Startup continues automatically as the platform accepts values, or immediately if more memory is available.';
  return new StoreError(message, { code: 'store.draining', hint });
}
