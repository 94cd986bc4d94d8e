import { join } from 'node:path';

/** Where Node keeps what it makes of the sources, from process to process: that is more than half of a start. Keyed by content. */
export const COMPILED_CODE = { NODE_COMPILE_CACHE: join(import.meta.dirname, '../node_modules/.cache/compiled') };
