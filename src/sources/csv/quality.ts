/** Reads the quality of a value from its own column. Pure. */
import type { Quality } from '../intake/gate.ts';

export type QualityMap = Readonly<Record<string, Quality>>;

/**
 * Returns the quality that a cell represents: the one in `map`, a word, or a code of OPC Classic. Returns `undefined`
 * for other text, and for 1, which means good in some archives and bad in OPC Classic.
 */
export function qualityOf(text: string, map: QualityMap | undefined): Quality | undefined {
  if (map !== undefined && Object.hasOwn(map, text)) return map[text];
  // Examples: `Good`, `Bad [Not Connected]`, `UncertainLastUsableValue`.
  const [word] = /^(?:good|uncertain|bad)/.exec(text.toLowerCase()) ?? [];
  if (word !== undefined) return word as Quality;
  const [, digits] = /^(\d{1,3})(?:[.,]0+)?$/.exec(text) ?? [];
  const code = Number(digits ?? Number.NaN);
  if (code >= 192 && code <= 255) return 'good';
  if (code >= 64 && code <= 127) return 'uncertain';
  return code >= 0 && code < 64 && code !== 1 ? 'bad' : undefined;
}
