import { readFileSync } from 'node:fs';
import { fileURLToPath } from 'node:url';

/** The folder that holds package.json: two above this file in the source, one above what is built, where every file lies flat in `dist/`. */
const ROOT = new URL(import.meta.url.endsWith('.ts') ? '../../' : '../', import.meta.url);

/** Configuration as it is shipped: what `setup` starts from. */
export const SHIPPED_CONFIGURATION = new URL('config/', ROOT);

/** A file by its place beside package.json. */
export function installedFile(path: string): string {
  return fileURLToPath(new URL(path, ROOT));
}

/** Of package.json, by semver. */
export function version(): string {
  return (JSON.parse(readFileSync(new URL('package.json', ROOT), 'utf8')) as { version: string }).version;
}

/** What the browser gets, one folder a page: `scripts/build-page.ts` makes it. */
export const BUILT_PAGES = new URL(import.meta.url.endsWith('.ts') ? '../../dist/page/' : 'page/', import.meta.url);
