import { hostname } from 'node:os';
import { describe, expect, it } from 'vitest';
import { check, ENOUGH } from './folder.ts';

const WITH = { ...ENOUGH, LINE: 'north', ASSET: '881', BRACE: '}: [' };
/** A placeholder, as a file has it. */
const P = (name: string) => `\${${name}}`;

describe('a placeholder', () => {
  it('is filled in from the machine and the environment, in values and names, scalar by scalar', () => {
    const { configuration, lines } = check(
      {
        'tags.yaml': `tags:\n  GW-${P('HOSTNAME')}:\n    asset: "${P('ASSET')}"\n    values: { "${P('LINE')}-flow": { group: "${P('LINE')}" } }\n`,
        'agent.env': `CLIENT_APPLICATION=${P('LINE')}-${P('HOSTNAME')}\n`,
        'reactions.yaml': `reactions:\n  - name: r\n    on: asset_appeared\n    do:\n      - run: ["/bin/true", "${P('BRACE')}", "$${P('LINE')}", "$5 {x}"]\n`,
      },
      WITH,
    );
    expect(lines).toEqual([]);
    const tag = configuration!.tags.tags.get(`GW-${hostname()}`);
    expect(tag?.asset).toBe(881);
    expect([...tag!.values.keys()]).toEqual(['north-flow']);
    expect(configuration!.settings.clientApplication).toBe(`north-${hostname()}`);
    const [action] = configuration!.reactions[0]!.actions;
    expect(action).toMatchObject({ command: ['/bin/true', '}: [', P('LINE'), '$5 {x}'] });
  });

  it('that is not known, or is a secret, is a problem on its line', () => {
    const { errors } = check(
      {
        'tags.yaml': `tags:\n  T:\n    asset: 1\n    values:\n      a: { group: "${P('NOBODY')}" }\n      "b${P('CLIENT_SECRET')}": {}\n      c: { group: "\${open" }\n      d: { group: "${P('A-B')}" }\n`,
        'agent.env': `POST_INTERVAL=1s\nCLIENT_APPLICATION=${P('NOTHING')}\n`,
      },
      WITH,
    );
    expect(errors.map((line) => line.replace(/, (set|write|name|close).*/, ''))).toEqual([
      `DIR/agent.env:2: CLIENT_APPLICATION: ${P('NOTHING')} is not known: the service's environment has no NOTHING`,
      `DIR/tags.yaml:5: ${P('NOBODY')} is not known: the service's environment has no NOBODY`,
      `DIR/tags.yaml:6: ${P('CLIENT_SECRET')} is a secret, which is filled in nowhere`,
      'DIR/tags.yaml:7: a $' + '{ is not closed',
      `DIR/tags.yaml:8: a \${…} holds no name of letters, digits and _`,
    ]);
    expect(errors.join()).not.toContain(ENOUGH.CLIENT_SECRET);
  });

  it('that is not known in reactions.yaml is a problem on its line', () => {
    const reactions = `reactions:\n  - name: r\n    on: asset_appeared\n    do:\n      - run: ["/bin/true", "${P('NOBODY')}"]\n`;
    const { errors } = check({ 'reactions.yaml': reactions }, WITH);
    expect(errors.map((line) => line.replace(/, (set|write|name|close).*/, ''))).toEqual([
      `DIR/reactions.yaml:5: ${P('NOBODY')} is not known: the service's environment has no NOBODY`,
    ]);
  });

  it('is left alone in a secret', () => {
    const { CLIENT_SECRET: _, ...rest } = WITH;
    const { configuration, lines } = check({ 'agent.env': `CLIENT_SECRET=a${P('LINE')}b\n` }, rest);
    expect(lines).toEqual([]);
    expect(configuration!.settings.clientSecret).toBe(`a${P('LINE')}b`);
  });

  it('leaves what is wrong behind it at its place', () => {
    const tags = `tags:\n  "${P('LINE')}": { asset: 1, values: { v: { group: 7, nonsense: 1 } } }\n`;
    const { errors } = check({ 'tags.yaml': tags }, WITH);
    expect(errors.every((line) => line.startsWith('DIR/tags.yaml:2:'))).toBe(true);
    expect(errors.join()).toContain('nonsense');
  });

  it('between brackets without quotes is named as that', () => {
    const { errors } = check({ 'tags.yaml': `tags:\n  T: { asset: ${P('ASSET')} }\n` }, WITH);
    expect(errors).toEqual([
      `DIR/tags.yaml:2: a \${…} stands between brackets without quotes, put quotes around the text: "${P('NAME')}"`,
    ]);
  });
});

describe('what can be mistaken', () => {
  it('a # within a value is warned of, where a text may hold one', () => {
    const { CLIENT_SECRET: _, ...rest } = ENOUGH;
    const { lines } = check({ 'agent.env': 'CLIENT_SECRET=ab #cd\nPOST_INTERVAL=1s # fast\n' }, rest);
    expect(lines).toEqual([
      `DIR/agent.env:1: warning: CLIENT_SECRET: what follows " #" is taken for a comment, write CLIENT_SECRET='…' where it belongs to the value, else give it a line of its own`,
    ]);
  });

  it('characters of a tag that look like others are warned of, and a name in another script is not', () => {
    const { lines } = check({
      'tags.yaml':
        'tags:\n  FT\u2011101: { asset: 1 }\n  P\u0430-7: { asset: 2 }\n  \u041a\u043b\u0430\u043f\u0430\u043d-1: { asset: 3 }\n  M\u00fcller: { asset: 4 }\n',
    });
    expect(lines.map((line) => line.replace(/, type.*/, '').replace(/"[^"]*": /, ''))).toEqual([
      "DIR/tags.yaml:2: warning: character 3 of the tag's name is U+2011, which looks like another",
      "DIR/tags.yaml:3: warning: character 2 of the tag's name is U+0430, which looks like another",
    ]);
  });

  it.for([
    'a: "b',
    'a: [1, 2',
    'a: !x b',
    'a: *b',
    'a: "\\q"',
    'a: @b',
    '%YAML 9',
    'a: &b &c d',
    'a: {\n- x }',
    'a: b: c',
    '? [a]\n: b',
    'a: |x\n',
  ])('broken YAML is told in our words: %j', (text) => {
    const { errors } = check({ 'tags.yaml': `${text}\n` });
    expect(errors.length).toBeGreaterThan(0);
    expect(errors.join()).not.toMatch(
      /flow|implicit|scalar|[Mm]ap\b|collection|token|Missing|Unresolved|node|escape sequence/,
    );
  });
});
