import { describe, expect, it } from 'vitest';
import { checkConfiguration } from '../../../src/config/configuration.ts';
import { ACTION_KINDS } from '../../../src/reactions/actions.ts';
import { SOURCE_KINDS } from '../../../src/sources/kinds.ts';
import { check, ENOUGH, makeFolder } from './folder.ts';

const TAG = (name: string, asset: number) => `tags: { ${name}: { asset: ${asset}, values: { v: {} } } }\n`;
const RULE = (name: string) => `reactions: [{ name: ${name}, on: asset_appeared, do: [{ log: warn }] }]\n`;

describe('drop-in folder', () => {
  it('overrides settings in earlier files by key, in file name order', () => {
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

  it('extends tags.yaml and reactions.yaml, which may be missing', () => {
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

  it('reports each problem with its file and line', () => {
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

  it('rejects a duplicate tag, source or reaction, and reports both locations', () => {
    const { errors } = check({
      'tags.yaml': 'tags:\n  A: { asset: 1 }\nsources:\n  self: { host: true, every: 10s }\n',
      'tags.d/x.yaml': 'tags:\n\n  A: { asset: 2 }\nsources:\n  self: { host: true, every: 10s }\n',
      'reactions.yaml': RULE('one'),
      'reactions.d/x.yaml': `\n${RULE('one')}`,
    });
    expect(errors).toEqual([
      'DIR/tags.d/x.yaml:3: tag "A" is already defined in DIR/tags.yaml:2, keep only one',
      'DIR/tags.d/x.yaml:5: source "self" is already defined in DIR/tags.yaml:4, keep only one',
      'DIR/reactions.d/x.yaml:2: the name "one" is already used in DIR/reactions.yaml:1, use a unique name for each reaction',
    ]);
  });

  it('ignores hidden files and files left by editors and dpkg, and reports other file extensions', () => {
    const { lines } = check({
      'tags.d/.10.yaml': 'tags: no\n',
      'tags.d/10.yaml~': 'tags: no\n',
      'tags.d/10.yaml.dpkg-dist': 'tags: no\n',
      'agent.env.d/10.env.dpkg-old': 'NONSENSE\n',
      'tags.d/20.yml': TAG('B', 2),
    });
    expect(lines).toEqual([
      'DIR/tags.d/20.yml: warning: the file is ignored: its name does not end in .yaml, rename or remove it',
    ]);
  });

  it('replaces a missing agent.env', () => {
    const folder = makeFolder({
      'tags.yaml': TAG('A', 1),
      'agent.env.d/all.env': Object.entries(ENOUGH)
        .map(([k, v]) => `${k}=${v}`)
        .join('\n'),
    });
    const { configuration } = checkConfiguration({
      directory: folder,
      environment: {},
      kinds: SOURCE_KINDS,
      actions: ACTION_KINDS,
    });
    expect(configuration?.settings.clientId).toBe('key');
  });
});
