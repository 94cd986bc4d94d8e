/**
 * From where the deliveries list is read (decisions; `catch-up.ts` does it).
 *
 * The watermark is the newest `occurred_at` that a complete pass has listed, but never later than the platform clock
 * at the first page of that pass: both times are the platform's, so neither the gateway's clock nor the date of one response decides,
 * and one event from the future does not move it past later events. Whatever occurs later than all that was listed lies behind it by definition.
 *
 * What becomes visible late, with an `occurred_at` before the watermark, is what the overlap is for: a quarter of an hour on
 * every pass, and once a day four days, longer than the platform's own three days of attempts. Entries that were
 * read before cost a look-up each and are recognised. A pass that fails leaves the watermark where it was.
 */
export interface Watermark {
  /** The registration that it belongs to: another one begins anew. */
  scope: string;
  /** Platform's clock. */
  upToMs: number;
  /** Platform's clock at the last pass with the long overlap. */
  deepAtMs?: number;
}

const OVERLAP_MS = 15 * 60_000;
const DEEP_OVERLAP_MS = 4 * 86_400_000;
const DEEP_EVERY_MS = 86_400_000;

export interface PassPlan {
  /** `undefined`: all that the platform still has (six months). */
  fromMs: number | undefined;
  deep: boolean;
}

/** How the next pass reads. `platformMs`: platform time, if it is known. */
export function planPass(mark: Watermark | undefined, scope: string, platformMs: number | undefined): PassPlan {
  if (!mark || mark.scope !== scope) return { fromMs: undefined, deep: true };
  // A platform clock that was set back leaves a deep pass in the future.
  const sinceDeepMs = Math.abs((platformMs ?? 0) - (mark.deepAtMs ?? Number.NEGATIVE_INFINITY));
  const deep = platformMs !== undefined && sinceDeepMs >= DEEP_EVERY_MS;
  return { fromMs: mark.upToMs - (deep ? DEEP_OVERLAP_MS : OVERLAP_MS), deep };
}

/** The watermark after a complete pass. `undefined` where nothing was ever listed: the next pass reads all again, which is nothing. */
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

/** Where the inbox keeps the watermark; without one everything that the platform still has is read. */
export const WATERMARK_NOTE = 'catch_up.watermark';

/** A watermark as it was kept, or `undefined` where that cannot be read: then everything is read again. */
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
