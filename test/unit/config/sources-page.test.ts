import { readFileSync } from 'node:fs';
import { join } from 'node:path';
import { describe, expect, it } from 'vitest';
import { SOURCE_KINDS } from '../../../src/sources/kinds.ts';
import { check } from './folder.ts';

const PAGE = readFileSync(join(import.meta.dirname, '../../../docs/guide/sources.md'), 'utf8');
/** Complete tags.yaml files, each below the heading for its kind. */
const EXAMPLES = [...PAGE.matchAll(/^```yaml\n(.*?)^```$/gms)]
  .map(({ 1: text, index }) => ({
    text: text!,
    of:
      PAGE.slice(0, index)
        .match(/^## .*$/gm)
        ?.at(-1) ?? '',
  }))
  .filter(({ text }) => /^sources:/m.test(text) && /^tags:/m.test(text));

describe('docs/guide/sources.md', () => {
  it('contains complete, valid examples', () => {
    expect(EXAMPLES.length).toBeGreaterThan(0);
  });

  it.each(EXAMPLES)('contains an example of "$of" that check accepts without warnings', ({ text }) => {
    expect(check({ 'tags.yaml': text }).lines).toEqual([]);
  });

  it('contains an example of every kind of source, with all members', () => {
    const written = EXAMPLES.map(({ text }) => text).join('\n');
    for (const { kind, sourceMembers, valueMembers } of SOURCE_KINDS) {
      expect(written).toMatch(new RegExp(`\\b${kind}: `));
      for (const member of [...Object.keys(sourceMembers), ...Object.keys(valueMembers)]) {
        expect([kind, member, PAGE.includes(member)]).toEqual([kind, member, true]);
      }
    }
  });
});
