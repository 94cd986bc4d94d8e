import { readFileSync } from 'node:fs';
import { join } from 'node:path';
import { describe, expect, it } from 'vitest';
import { parsePlacedYaml } from '../../../src/config/placed-yaml.ts';
import { readPlainYaml } from '../../../src/config/plain-yaml.ts';
import { Problems } from '../../../src/config/problem.ts';
import { ManualClock } from '../doubles/manual-clock.ts';

const LIMITS = { nodes: 10_000, depth: 40, nameLength: 1_024 };
const CONFIG = join(import.meta.dirname, '../../../config');
const SHIPPED = ['tags.yaml', 'reactions.yaml'].map((name) => readFileSync(join(CONFIG, name), 'utf8'));
/** With the comment marks removed from examples, which also results in lines that are not YAML. */
const UNCOMMENTED = SHIPPED.map((text) => text.replace(/^(\s*)# ?/gm, '$1'));
const WRITTEN = `tags:
  FT-101:
    asset: 881
    values:
      flow: { unit: 12, group: process, from: plc, topic: "a/b", at: /x/0 }
      "temp °C": { unit: { code: "°C" } }
  'it''s': { asset: 1, values: { a: {}, b: } }
sources:
  plc: { modbus: tcp://10.0.0.1:502 }
  m:
    topics:
    - a
    - b/#
    text: two lines
      of it
`;
const CORPUS = [...SHIPPED, ...UNCOMMENTED, WRITTEN, WRITTEN, WRITTEN];
const PIECES = [
  ...' \t:-{}[]",\'#\n|>?.0aA%@`~=/\\\r\u00a0\ufeff\u2028',
  ...[
    'tags:',
    '- ',
    ': ',
    '0x1F',
    '0o7',
    '077',
    '1e3',
    '1_0',
    '.5',
    'null',
    'Null',
    'yes',
    'True',
    '"a',
    '{',
    '}',
    '[',
    ']',
  ],
  ...[
    '---\n',
    '...\n',
    '# c\n',
    '? ',
    '>-',
    '!x ',
    '!!str ',
    '&a ',
    '*a',
    '<<: ',
    'k: v\n',
    'a: b: c\n',
    '.inf',
    '12:30',
    '2001-01-01',
  ],
];

/** Reads a text with the full parser, and returns its data and problems. */
function readPlaced(text: string): { data: unknown; faults: string[] } {
  const problems = new Problems();
  const file = parsePlacedYaml(text, 'x.yaml', LIMITS, problems);
  return { data: file?.data, faults: problems.list.map(({ reason }) => reason) };
}

describe('fast YAML reader', () => {
  it('reads the shipped files', () => {
    for (const text of [...SHIPPED, WRITTEN]) expect(readPlainYaml(text, LIMITS)).toBeDefined();
  });

  it('returns the same result as the full parser for random files, unless it declines them', () => {
    const chance = new ManualClock(0, 20_261_121);
    const below = (most: number) => Math.floor(chance.random() * most);
    const oneOf = <One>(many: readonly One[]) => many[below(many.length)]!;
    let taken = 0;
    for (let round = 0; round < 12_000; round++) {
      const lines = oneOf(CORPUS).split('\n');
      const from = below(lines.length);
      let text = below(10) === 0 ? lines.join('\n') : lines.slice(from, from + 3 + below(25)).join('\n');
      for (let changes = below(4); changes > 0; changes--) {
        const at = below(text.length);
        const gone = below(3) === 0 ? 1 + below(4) : 0;
        text = `${text.slice(0, at)}${gone === 0 ? oneOf(PIECES) : ''}${text.slice(at + gone)}`;
      }
      const short = readPlainYaml(text, LIMITS);
      if (short === undefined) continue;
      taken++;
      expect({ text, data: short, faults: [] }).toEqual({ text, ...readPlaced(text) });
    }
    expect(taken).toBeGreaterThan(1_000);
  });

  it.each([
    ['a duplicate name', 'a: 1\na: 2\n'],
    ['a number and a string that are the same name', '1: a\n"1": b\n'],
    ['a mapping as a name', '? {a: 1}\n: b\n'],
    ['an alias', 'a: &x 1\nb: *x\n'],
    ['more nodes than the limit', `a: [${'1,'.repeat(LIMITS.nodes)}]`],
    ['more depth than the limit', `a: ${'['.repeat(60)}${']'.repeat(60)}`],
    ['an empty file', '# nothing\n'],
  ])('declines %s', (_, text) => {
    expect(readPlainYaml(text, LIMITS)).toBeUndefined();
  });

  it('preserves a tag named __proto__', () => {
    const data = readPlainYaml('tags: { __proto__: { asset: 1 } }\n', LIMITS) as { tags: object };
    expect(Object.keys(data.tags)).toEqual(['__proto__']);
  });
});
