import { existsSync, readFileSync } from 'node:fs';
import { join } from 'node:path';
import { describe, expect, it } from 'vitest';

const ROOT = join(import.meta.dirname, '../..');
const page = readFileSync(join(ROOT, 'docs/security.md'), 'utf8');
const claims = page
  .slice(page.indexOf('## Claims'), page.indexOf('## Reporting'))
  .split('\n')
  .filter((line) => line.startsWith('| ') && !line.startsWith('| claim'));

/** `[file](../test/…): “its name”`, as the second column has them. */
function testsOf(claim: string): { file: string; name: string }[] {
  return [...claim.matchAll(/\]\(\.\.\/(test\/[^)]+\.ts)\): “([^”]+)”/g)].map(([, file, name]) => ({
    file: file!,
    name: name!,
  }));
}

describe('docs/security.md', () => {
  it('has claims, each with a test', () => {
    expect(claims.length).toBeGreaterThan(40);
    expect(claims.filter((claim) => testsOf(claim).length === 0)).toEqual([]);
    // None is cut off by a quote that does not close.
    expect(claims.filter((claim) => testsOf(claim).length !== claim.split('](../test/').length - 1)).toEqual([]);
  });

  it('names tests that are there', () => {
    const missing = claims.flatMap(testsOf).filter(({ file, name }) => {
      const path = join(ROOT, file);
      return !existsSync(path) || !readFileSync(path, 'utf8').includes(name);
    });
    expect(missing).toEqual([]);
  });
});

describe('the unit', () => {
  it('lets no core be written, which would hold the secrets, and no new privileges be gained', () => {
    const unit = readFileSync(join(ROOT, 'systemd/tagferry.service'), 'utf8').split('\n');
    for (const line of [
      'LimitCORE=0',
      'NoNewPrivileges=yes',
      'UMask=0077',
      'StateDirectoryMode=0700',
      'CapabilityBoundingSet=',
    ]) {
      expect(unit).toContain(line);
    }
  });
});
