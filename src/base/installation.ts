import { readFileSync } from 'node:fs';
import { fileURLToPath } from 'node:url';

/** Folder of package.json: two levels up in the source tree, one level up in the flat `dist/`. */
const ROOT = new URL(import.meta.url.endsWith('.ts') ? '../../' : '../', import.meta.url);

/** Shipped configuration, copied by `setup`. */
export const SHIPPED_CONFIGURATION = new URL('config/', ROOT);

/** Returns the path of a file relative to package.json. */
export function installedFile(path: string): string {
  return fileURLToPath(new URL(path, ROOT));
}

/** Returns the semantic version in package.json. */
export function version(): string {
  return (JSON.parse(readFileSync(new URL('package.json', ROOT), 'utf8')) as { version: string }).version;
}

/** Browser files, built by `scripts/build-page.ts`. */
export const BUILT_PAGE = new URL(import.meta.url.endsWith('.ts') ? '../../dist/page/' : 'page/', import.meta.url);
