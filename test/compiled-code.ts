import { join } from 'node:path';

/** Folder in which Node caches compiled sources for all processes by content, which more than halves startup time. */
export const COMPILED_CODE = { NODE_COMPILE_CACHE: join(import.meta.dirname, '../node_modules/.cache/compiled') };
