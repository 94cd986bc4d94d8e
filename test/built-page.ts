import { execFileSync } from 'node:child_process';
import { join } from 'node:path';

/** Before all tests: what the browser gets, as `scripts/setup` leaves it. */
export default function buildPage(): void {
  const script = join(import.meta.dirname, '../scripts/build-page.ts');
  execFileSync(process.execPath, [script, '--stale'], { stdio: 'inherit' });
}
