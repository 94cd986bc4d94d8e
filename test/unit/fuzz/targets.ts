import type { FuzzTarget } from './target.ts';
import { CONFIGURATION } from './targets/configuration.ts';
import { PLANT_VALUES } from './targets/plant-values.ts';
import { PLATFORM_WORDS } from './targets/platform-responses.ts';
import { PUSHED_VALUES } from './targets/pushed-values.ts';
import { REACTIONS } from './targets/reactions.ts';
import { STORED_ROWS } from './targets/stored-rows.ts';
import { WIRE } from './targets/wire-protocols.ts';

/** All parsers of external input. */
export const TARGETS: readonly FuzzTarget[] = [
  ...PUSHED_VALUES,
  ...PLANT_VALUES,
  ...CONFIGURATION,
  ...PLATFORM_WORDS,
  ...REACTIONS,
  ...STORED_ROWS,
  ...WIRE,
];
