import { hostname } from 'node:os';
import { describe, expect, it } from 'vitest';
import { check, ENOUGH } from './folder.ts';

const WITH = { ...ENOUGH, LINE: 'north', ASSET: '881', BRACE: '}: [' };
/** Formats a placeholder as in a file. */
const P = (name: string) => `\${${name}}`;

describe('placeholder', () => {
  it('is replaced with values from the machine and the environment, in both keys and values, one scalar at a time', () => {
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

  it('is reported at its line if it is unknown or a secret', () => {
    const { errors } = check(
      {
        'tags.yaml': `tags:\n  T:\n    asset: 1\n    values:\n      a: { group: "${P('NOBODY')}" }\n      "b${P('CLIENT_SECRET')}": {}\n      c: { group: "\${open" }\n      d: { group: "${P('A-B')}" }\n`,
        'agent.env': `POST_INTERVAL=1s\nCLIENT_APPLICATION=${P('NOTHING')}\n`,
      },
      WITH,
    );
    expect(errors.map((line) => line.replace(/, (set|use \$|name|close).*/, ''))).toEqual([
      `DIR/agent.env:2: CLIENT_APPLICATION: ${P('NOTHING')} is undefined: the service's environment does not contain NOTHING`,
      `DIR/tags.yaml:5: ${P('NOBODY')} is undefined: the service's environment does not contain NOBODY`,
      `DIR/tags.yaml:6: ${P('CLIENT_SECRET')} is a secret, and secrets are not substituted, use a file that contains it`,
      'DIR/tags.yaml:7: a $' + '{ is not closed',
      `DIR/tags.yaml:8: a \${…} must contain a name of letters, digits and _`,
    ]);
    expect(errors.join()).not.toContain(ENOUGH.CLIENT_SECRET);
  });

  it('is reported at its line in reactions.yaml if it is unknown', () => {
    const reactions = `reactions:\n  - name: r\n    on: asset_appeared\n    do:\n      - run: ["/bin/true", "${P('NOBODY')}"]\n`;
    const { errors } = check({ 'reactions.yaml': reactions }, WITH);
    expect(errors.map((line) => line.replace(/, (set|use \$|name|close).*/, ''))).toEqual([
      `DIR/reactions.yaml:5: ${P('NOBODY')} is undefined: the service's environment does not contain NOBODY`,
    ]);
  });

  it('is not replaced in a secret', () => {
    const { CLIENT_SECRET: _, ...rest } = WITH;
    const { configuration, lines } = check({ 'agent.env': `CLIENT_SECRET=a${P('LINE')}b\n` }, rest);
    expect(lines).toEqual([]);
    expect(configuration!.settings.clientSecret).toBe(`a${P('LINE')}b`);
  });

  it('does not change the line numbers of problems that follow it', () => {
    const tags = `tags:\n  "${P('LINE')}": { asset: 1, values: { v: { group: 7, nonsense: 1 } } }\n`;
    const { errors } = check({ 'tags.yaml': tags }, WITH);
    expect(errors.every((line) => line.startsWith('DIR/tags.yaml:2:'))).toBe(true);
    expect(errors.join()).toContain('nonsense');
  });

  it('is reported if it is unquoted in a flow mapping', () => {
    const { errors } = check({ 'tags.yaml': `tags:\n  T: { asset: ${P('ASSET')} }\n` }, WITH);
    expect(errors).toEqual([
      `DIR/tags.yaml:2: a \${…} in brackets requires quotes, put quotes around the string: "${P('NAME')}"`,
    ]);
  });
});

describe('ambiguous YAML text', () => {
  it('is reported if a value contains #', () => {
    const { CLIENT_SECRET: _, ...rest } = ENOUGH;
    const { lines } = check({ 'agent.env': 'CLIENT_SECRET=ab #cd\nPOST_INTERVAL=1s # fast\n' }, rest);
    expect(lines).toEqual([
      `DIR/agent.env:1: warning: CLIENT_SECRET: the text after " #" is a comment, use CLIENT_SECRET='…' if it belongs to the value, otherwise move it to a separate line`,
    ]);
  });

  it('is reported if a tag contains look-alike characters, but not if the tag is in another script', () => {
    const { lines } = check({
      'tags.yaml':
        'tags:\n  FT\u2011101: { asset: 1 }\n  P\u0430-7: { asset: 2 }\n  \u041a\u043b\u0430\u043f\u0430\u043d-1: { asset: 3 }\n  M\u00fcller: { asset: 4 }\n',
    });
    expect(lines.map((line) => line.replace(/, type.*/, '').replace(/"[^"]*": /, ''))).toEqual([
      'DIR/tags.yaml:2: warning: character 3 of the tag name is U+2011, which resembles another character, retype the name, here and in programs that push values for the tag',
      'DIR/tags.yaml:3: warning: character 2 of the tag name is U+0430, which resembles another character, retype the name, here and in programs that push values for the tag',
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
  ])('that is invalid is reported with a tagferry message: %j', (text) => {
    const { errors } = check({ 'tags.yaml': `${text}\n` });
    expect(errors.length).toBeGreaterThan(0);
    expect(errors.join()).not.toMatch(
      /flow|implicit|scalar|[Mm]ap\b|collection|token|Missing|Unresolved|node|escape sequence/,
    );
  });
});
