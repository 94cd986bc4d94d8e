import { existsSync, readFileSync } from 'node:fs';
import { join } from 'node:path';
import { describe, expect, it } from 'vitest';

const ROOT = join(import.meta.dirname, '../..');
const page = readFileSync(join(ROOT, 'docs/internals/security.md'), 'utf8');
const claims = page
  .slice(page.indexOf('## Claims'), page.indexOf('## Reporting'))
  .split('\n')
  .filter((line) => line.startsWith('| ') && !line.startsWith('| claim'));

/** Returns the citations in the second column: `[file](../test/…): “title”`. */
function testsOf(claim: string): { file: string; name: string }[] {
  return [...claim.matchAll(/\]\(\.\.\/\.\.\/(test\/[^)]+\.ts)\): “([^”]+)”/g)].map(([, file, name]) => ({
    file: file!,
    name: name!,
  }));
}

describe('docs/internals/security.md', () => {
  it('cites a test for each claim', () => {
    expect(claims.length).toBeGreaterThan(40);
    expect(claims.filter((claim) => testsOf(claim).length === 0)).toEqual([]);
    // No citation is truncated by a missing quotation mark.
    expect(claims.filter((claim) => testsOf(claim).length !== claim.split('](../../test/').length - 1)).toEqual([]);
  });

  it('cites existing tests', () => {
    const missing = claims.flatMap(testsOf).filter(({ file, name }) => {
      const path = join(ROOT, file);
      return !existsSync(path) || !readFileSync(path, 'utf8').includes(name);
    });
    expect(missing).toEqual([]);
  });
});

describe('systemd unit', () => {
  it('disables core dumps, which would contain secrets, and new privileges', () => {
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
