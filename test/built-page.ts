import { execFileSync } from 'node:child_process';
import { join } from 'node:path';

/** Builds the page before all tests, as `scripts/setup` does. */
export default function buildPage(): void {
  const script = join(import.meta.dirname, '../scripts/build-page.ts');
  execFileSync(process.execPath, [script, '--stale'], { stdio: 'inherit' });
}
