/**
 * Determines where the next pass through the deliveries list starts.
 *
 * The watermark is the newest `occurred_at` in a complete pass, but not later than the platform clock at its first
 * page. The gateway clock and events with a future time therefore cannot advance it too far. A pass overlaps the
 * previous pass by 15 minutes, and once a day by four days, because entries may become visible late. A failed pass does
 * not advance the watermark.
 */
export interface Watermark {
  /** Registration to which the watermark belongs. */
  scope: string;
  /** Time of the watermark, according to the platform clock. */
  upToMs: number;
  /** Time of the latest pass with the long overlap, according to the platform clock. */
  deepAtMs?: number;
}

const OVERLAP_MS = 15 * 60_000;
const DEEP_OVERLAP_MS = 4 * 86_400_000;
const DEEP_EVERY_MS = 86_400_000;

export interface PassPlan {
  /** Earliest event time to read; undefined for the whole list (six months). */
  fromMs: number | undefined;
  deep: boolean;
}

/** Plans a pass. `platformMs`: platform time, if known. */
export function planPass(mark: Watermark | undefined, scope: string, platformMs: number | undefined): PassPlan {
  if (!mark || mark.scope !== scope) return { fromMs: undefined, deep: true };
  // If the platform clock was set back, the latest deep pass may be in the future.
  const sinceDeepMs = Math.abs((platformMs ?? 0) - (mark.deepAtMs ?? Number.NEGATIVE_INFINITY));
  const deep = platformMs !== undefined && sinceDeepMs >= DEEP_EVERY_MS;
  return { fromMs: mark.upToMs - (deep ? DEEP_OVERLAP_MS : OVERLAP_MS), deep };
}

/** Returns the watermark after a complete pass, or `undefined` if the list was empty so far. */
export function advance(
  mark: Watermark | undefined,
  scope: string,
  pass: { deep: boolean; newestMs: number | undefined; platformMs: number | undefined },
): Watermark | undefined {
  const before = mark?.scope === scope ? mark : undefined;
  const listedMs = pass.newestMs === undefined ? undefined : Math.min(pass.newestMs, pass.platformMs ?? pass.newestMs);
  if (listedMs === undefined && !before) return undefined;
  const upToMs = Math.max(listedMs ?? Number.NEGATIVE_INFINITY, before?.upToMs ?? Number.NEGATIVE_INFINITY);
  const deepAtMs = pass.deep ? pass.platformMs : before?.deepAtMs;
  return { scope, upToMs, ...(deepAtMs === undefined ? {} : { deepAtMs }) };
}

/** Name of the inbox note that stores the watermark. */
export const WATERMARK_NOTE = 'catch_up.watermark';

/** Returns `undefined` for invalid text. */
export function parseWatermark(text: string | undefined): Watermark | undefined {
  if (text === undefined) return undefined;
  try {
    const { scope, upToMs, deepAtMs } = JSON.parse(text) as Partial<Watermark>;
    if (typeof scope !== 'string' || typeof upToMs !== 'number' || !Number.isFinite(upToMs)) return undefined;
    return { scope, upToMs, ...(typeof deepAtMs === 'number' ? { deepAtMs } : {}) };
  } catch {
    return undefined;
  }
}
