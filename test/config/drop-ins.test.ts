import { describe, expect, it } from 'vitest';
import { checkConfiguration } from '../../src/config/configuration.ts';
import { SOURCE_KINDS } from '../../src/sources/kinds.ts';
import { check, ENOUGH, makeFolder } from './folder.ts';

const TAG = (name: string, asset: number) => `tags: { ${name}: { asset: ${asset}, values: { v: {} } } }\n`;
const RULE = (name: string) => `reactions: [{ name: ${name}, on: asset_appeared, do: [{ log: warn }] }]\n`;

describe('the drop-in folders', () => {
  it('of settings replace key by key what stands before them, in the order of their names', () => {
    const { configuration, lines } = check({
      'agent.env': 'POST_INTERVAL=1s\nLOG_LEVEL=warn\nCLIENT_APPLICATION=first\n',
      'agent.env.d/20-line.env': 'POST_INTERVAL=3s\nCLIENT_APPLICATION=\n',
      'agent.env.d/10-site.env': 'POST_INTERVAL=2s\nPOST_CONCURRENCY=2\n',
    });
    expect(lines).toEqual([]);
    const { postIntervalMs, logLevel, postConcurrency, clientApplication } = configuration!.settings;
    expect({ postIntervalMs, logLevel, postConcurrency, clientApplication }).toEqual({
      postIntervalMs: 3000,
      logLevel: 'warn',
      postConcurrency: 2,
      clientApplication: undefined,
    });
  });

  it('of tags and reactions add to the file, and suffice without it', () => {
    const { configuration, lines } = check({
      'tags.yaml': TAG('A', 1),
      'tags.d/10.yaml': `sources: { self: { host: true, every: 10s } }\ntags: { B: { asset: 2, values: { l: { from: self, reading: load1 } } } }\n`,
      'tags.d/20.yaml': TAG('C', 3),
      'reactions.d/a.yaml': RULE('one'),
      'reactions.d/b.yaml': RULE('two'),
    });
    expect(lines).toEqual([]);
    expect([...configuration!.tags.tags.keys()]).toEqual(['A', 'B', 'C']);
    expect(configuration!.tags.tags.get('B')!.values.get('l')!.from?.source).toBe('self');
    expect(configuration!.reactions.map(({ name }) => name)).toEqual(['one', 'two']);
  });

  it('name the file of each problem, with its own line', () => {
    const { errors } = check({
      'tags.yaml': `${TAG('A', 1)}`,
      'tags.d/10.yaml': 'tags:\n  B:\n    asset: none\n',
      'tags.d/20.yaml': 'tags:\n  "C": { asset: 3 }\n   bad\n',
      'agent.env.d/10.env': '\nPOST_INTERVAL=1\n',
      'agent.env.d/20.env': 'POST_INTERVALL=1s\n',
      'reactions.yaml': RULE('one'),
      'reactions.d/x.yaml':
        'reactions:\n  - { name: two, on: asset_appeared, do: [{ log: warn }] }\n  - { name: three, on: nothing, do: [{ log: warn }] }\n',
    });
    expect(errors.map((line) => /^[^ ]+:\d+/.exec(line)?.[0]).sort()).toEqual([
      'DIR/agent.env.d/10.env:2',
      'DIR/agent.env.d/20.env:1',
      'DIR/reactions.d/x.yaml:3',
      'DIR/tags.d/10.yaml:3',
      'DIR/tags.d/20.yaml:3',
    ]);
  });

  it('take no tag, source or reaction twice, and name both places', () => {
    const { errors } = check({
      'tags.yaml': 'tags:\n  A: { asset: 1 }\nsources:\n  self: { host: true, every: 10s }\n',
      'tags.d/x.yaml': 'tags:\n\n  A: { asset: 2 }\nsources:\n  self: { host: true, every: 10s }\n',
      'reactions.yaml': RULE('one'),
      'reactions.d/x.yaml': `\n${RULE('one')}`,
    });
    expect(errors).toEqual([
      'DIR/tags.d/x.yaml:3: tag "A" stands already in DIR/tags.yaml:2, keep one of the two',
      'DIR/tags.d/x.yaml:5: source "self" stands already in DIR/tags.yaml:4, keep one of the two',
      'DIR/reactions.d/x.yaml:2: the name "one" stands already in DIR/reactions.yaml:1, give each reaction a name of its own',
    ]);
  });

  it('pass over hidden files, those of editors and of dpkg, and name one with another ending', () => {
    const { lines } = check({
      'tags.d/.10.yaml': 'tags: no\n',
      'tags.d/10.yaml~': 'tags: no\n',
      'tags.d/10.yaml.dpkg-dist': 'tags: no\n',
      'agent.env.d/10.env.dpkg-old': 'NONSENSE\n',
      'tags.d/20.yml': TAG('B', 2),
    });
    expect(lines).toEqual([
      'DIR/tags.d/20.yml: warning: the file is not read: its name does not end in .yaml, rename or remove it',
    ]);
  });

  it('say of a settings file alone that agent.env is missing nowhere', () => {
    const folder = makeFolder({
      'tags.yaml': TAG('A', 1),
      'agent.env.d/all.env': Object.entries(ENOUGH)
        .map(([k, v]) => `${k}=${v}`)
        .join('\n'),
    });
    const { configuration } = checkConfiguration({ directory: folder, environment: {}, kinds: SOURCE_KINDS });
    expect(configuration?.settings.clientId).toBe('key');
  });
});
