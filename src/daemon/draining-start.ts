/**
 * A start whose backlog names more series than the memory allows. A daemon that loaded them all would be killed for it, and
 * again at each start, so that what was acknowledged could never leave. So the store loads as many as fit, the oldest
 * values' first, and the uplink posts them while the listeners answer 503; then the store opens anew with the next, until one
 * opening finds room for all that is left.
 *
 * What cannot leave now (an asset that is held, a series that waits) stays loaded, and the next opening takes in what fits
 * beside it. A crash at any point is a start like this one.
 */
import type { Clock } from '../base/clock.ts';
import { StoreError } from '../base/errors.ts';
import type { Logger } from '../base/logger.ts';
import type { Settings } from '../config/settings.ts';
import type { Tag } from '../config/tags.ts';
import type { Metrics } from '../ops/metrics.ts';
import { PostAddresses } from '../uplink/post-address.ts';
import type { BufferFlow, ClosedBuffer } from './buffer-flow.ts';
import type { DegradedStart } from './degraded-start.ts';
import { makeHolds } from './events-flow.ts';
import type { PlatformFlow } from './platform-flow.ts';
import { makeUplink } from './uplink-making.ts';

export interface DrainingStartOptions {
  settings: Settings;
  tags: ReadonlyMap<string, Tag>;
  platform: PlatformFlow;
  waiting: Pick<DegradedStart, 'during'>;
  clock: Clock;
  log: Logger;
  metrics: Metrics;
  /** Begins the first login, however often it is asked. */
  startSession(): Promise<void>;
  /** Closes the buffer that is open, and makes another, which is to be opened. */
  renew(): Promise<Pick<ClosedBuffer, 'open'>>;
}

const LOOK_MS = 200;
/** A store that has answered nothing for so long is stuck. */
const STORE_PATIENCE_MS = 120_000;
const SAY_EVERY_MS = 60_000;
/** Nothing has left for so long: what is left of these series waits for something, and others may have room beside it. */
const STALLED_MS = 60_000;
/** For posts under way when the agent stops. */
const STOP_UPLINK_MS = 10_000;
/**
 * At the end of a round nobody is in a hurry: a post ends by its own deadline (`http-boundary.ts`). One that was broken off before would be
 * posted again in the next round, whether the platform took it or not.
 */
const END_ROUND_MS = 120_000;

/** Gives the buffer with everything loaded, at once where it is; `undefined` where the agent was stopped meanwhile. */
export async function drainFirst(buffer: BufferFlow, options: DrainingStartOptions): Promise<BufferFlow | undefined> {
  if (buffer.facts.notLoaded === 0) return buffer;
  const { clock, log, waiting } = options;
  const startMs = clock.monotonicMs();
  let rounds = 0;
  let open = buffer;
  const isOver = await waiting.during(why(buffer), async ({ signal, tell, untilOpen }) => {
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
        'more series wait in the buffer than the memory allows: nothing is taken in until enough of them have left',
      );
      await drainRound(open, options, signal, () => tell(why(open)));
      if (signal.aborted) return;
    }
  });
  if (!isOver) return undefined;
  const waitedMs = Math.round(clock.monotonicMs() - startMs);
  log.info({ event: 'store.drained', rounds, waitedMs }, 'all series fit into memory, the start goes on');
  return open;
}

/**
 * Posts what is loaded, until nothing of it is left or nothing more leaves. What has left is written down first: on a disk that
 * takes no writes meanwhile the next opening would find it there still, and post it again.
 */
async function drainRound(
  buffer: BufferFlow,
  { settings, tags, platform, clock, log, metrics }: DrainingStartOptions,
  signal: AbortSignal,
  tell: () => void,
): Promise<void> {
  const holds = makeHolds({ settings, tags: tags.values(), buffer, clock, log });
  await holds.start();
  const addresses = new PostAddresses(buffer.catalogue, settings.valuesPath, tags.values());
  const uplink = makeUplink({
    settings,
    buffer: buffer.outgoing,
    access: holds,
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
  let movedMs = clock.monotonicMs();
  let saidMs = movedMs;
  // What is held may stay so for weeks: others go on beside it.
  const isAllHeld = () => [...buffer.outgoing.lanes().keys()].every((asset) => holds.isHeld(asset));
  const mayReopen = () =>
    !buffer.facts.dirty && left < first && (isAllHeld() || clock.monotonicMs() - movedMs > STALLED_MS);
  try {
    while ((left > 0 || buffer.facts.dirty) && !signal.aborted && !mayReopen()) {
      await clock.sleep(LOOK_MS, signal).catch(() => {});
      const nowMs = clock.monotonicMs();
      if (buffer.bufferedValues < left) movedMs = nowMs;
      left = buffer.bufferedValues;
      // The watchdog hears of it: one that is stuck tells nothing.
      if (buffer.isAlive(nowMs, STORE_PATIENCE_MS) && uplink.isAlive(nowMs)) tell();
      if (nowMs - saidMs < SAY_EVERY_MS) continue;
      saidMs = nowMs;
      log.info({ event: 'store.draining_on', values: left, notLoaded: buffer.facts.notLoaded }, 'the buffer drains');
    }
  } finally {
    forget();
    const hurry = () => void uplink.stop(STOP_UPLINK_MS);
    signal.addEventListener('abort', hurry);
    await uplink.stop(signal.aborted ? STOP_UPLINK_MS : END_ROUND_MS);
    signal.removeEventListener('abort', hurry);
  }
}

function why(buffer: BufferFlow): StoreError {
  const { failure } = buffer.committer;
  if (failure) return failure;
  const words =
    `more series wait in the buffer than the memory allows: the oldest ${buffer.bufferedValues} values drain, ` +
    `${buffer.facts.notLoaded} follow`;
  const hint = 'Everything is safe. It goes on by itself while the platform takes values; with more memory at once.';
  return new StoreError(words, { code: 'store.draining', hint });
}
