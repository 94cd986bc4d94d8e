import { describe, expect, it } from 'vitest';
import { HOST_READING_NAMES } from '../../src/contract/host-readings.ts';
import { check } from './folder.ts';

const EXAMPLE = `sources:
  plc1:   { modbus: "tcp://192.168.0.5:502", unit: 1, every: 1s }
  broker: { mqtt: "mqtt://127.0.0.1:1883" }
  self:   { host: true, every: 10s }
tags:
  FT-101:
    asset: 881
    instrumentation: 4711
    values:
      flow:        { unit: 12, group: process, from: plc1, register: holding 30013, type: float32 }
      temperature: { unit: { code: degree_celsius }, from: broker, topic: site/ft101, at: /temp }
  GW-01:
    asset: 900
    values:
      load:        { from: self, reading: load1 }
`;

const tagsOf = (text: string) => {
  const { configuration, lines } = check({ 'tags.yaml': text });
  expect(lines).toEqual([]);
  return configuration!.tags;
};

describe('tags.yaml', () => {
  it('of INTERFACE.md is read as it says', () => {
    const { sources, tags } = tagsOf(EXAMPLE);
    expect([...sources.values()]).toEqual([
      { kind: 'modbus', name: 'plc1', url: 'tcp://192.168.0.5:502', unit: 1, everyMs: 1000 },
      { kind: 'mqtt', name: 'broker', url: 'mqtt://127.0.0.1:1883' },
      { kind: 'host', name: 'self', everyMs: 10_000 },
    ]);
    const tag = tags.get('FT-101')!;
    expect({ ...tag, values: [...tag.values.values()] }).toEqual({
      name: 'FT-101',
      asset: 881,
      instrumentation: 4711,
      values: [
        {
          key: 'flow',
          group: 'process',
          unit: { id: 12 },
          from: {
            kind: 'modbus',
            source: 'plc1',
            register: { table: 'holding', address: 30_013, type: 'float32', wordOrder: 'big', scale: 1 },
          },
        },
        {
          key: 'temperature',
          unit: { code: 'degree_celsius' },
          from: { kind: 'mqtt', source: 'broker', topic: 'site/ft101', at: '/temp' },
        },
      ],
    });
    expect(tags.get('GW-01')!.values.get('load')).toEqual({
      key: 'load',
      from: { kind: 'host', source: 'self', reading: 'load1' },
    });
  });

  it('fills in what is left out', () => {
    const { sources, tags } = tagsOf(`sources:
  m: { modbus: tcp://plc }
  h: { host: true }
  s: { simulate: true }
tags:
  T:
    asset: 1
    values:
      a: { from: m, register: Input 1 }
      b: { from: m, register: coil 7 }
      c: { from: s }
      d: { from: s, shape: walk, low: -5, high: 5 }
      e: { from: h, reading: "disk_free:/var" }
      f: { from: m, register: input 3, type: int32, word_order: little, scale: 0.1 }
      g:
  101: { asset: 2 }
`);
    expect([...sources.values()]).toEqual([
      { kind: 'modbus', name: 'm', url: 'tcp://plc', unit: 1, everyMs: 1000 },
      { kind: 'host', name: 'h', everyMs: 10_000 },
      { kind: 'simulate', name: 's', everyMs: 1000 },
    ]);
    expect([...tags.get('T')!.values.values()].map((value) => value.from)).toEqual([
      {
        kind: 'modbus',
        source: 'm',
        register: { table: 'input', address: 1, type: 'uint16', wordOrder: 'big', scale: 1 },
      },
      {
        kind: 'modbus',
        source: 'm',
        register: { table: 'coil', address: 7, type: 'bool', wordOrder: 'big', scale: 1 },
      },
      { kind: 'simulate', source: 's', shape: 'sine', low: 0, high: 100 },
      { kind: 'simulate', source: 's', shape: 'walk', low: -5, high: 5 },
      { kind: 'host', source: 'h', reading: 'disk_free:/var' },
      {
        kind: 'modbus',
        source: 'm',
        register: { table: 'input', address: 3, type: 'int32', wordOrder: 'little', scale: 0.1 },
      },
      undefined,
    ]);
    expect(tags.get('101')).toEqual({ name: '101', asset: 2, values: new Map() });
  });

  it('lower-cases keys and groups as the platform does', () => {
    const { tags } = tagsOf('tags: { T: { asset: 1, values: { Flow: { group: Process } } } }');
    expect(tags.get('T')!.values.get('flow')).toEqual({ key: 'flow', group: 'process' });
  });

  it('lets the same key be in two groups, and in two assets', () => {
    tagsOf(
      'tags: { T: { asset: 1, values: { v: {} } }, U: { asset: 1, values: { v: { group: g } } }, W: { asset: 2, values: { v: {} } } }',
    );
  });

  it('follows anchors and merges, in bounds', () => {
    const { tags } = tagsOf(`tags:
  A: &a
    asset: 1
    instrumentation: 5
    values: { v: &v { unit: 3, group: x } }
  B: { <<: *a, asset: 2 }
  C: { asset: 3, values: { v: *v, w: { <<: *v, group: y } } }
`);
    expect(tags.get('B')).toMatchObject({ asset: 2, instrumentation: 5 });
    expect(tags.get('C')!.values.get('w')).toEqual({ key: 'w', group: 'y', unit: { id: 3 } });
  });

  it('knows every reading that a host source has', () => {
    const values = HOST_READING_NAMES.map((name, index) => `v${index}: { from: self, reading: ${name} }`).join(', ');
    tagsOf(`sources: { self: { host: true } }\ntags: { T: { asset: 1, values: { ${values} } } }`);
  });

  it('takes names that mean something to JavaScript', () => {
    const { tags } = tagsOf('tags: { __proto__: { asset: 1 }, constructor: { asset: 2, values: { toString: {} } } }');
    expect([...tags.keys()]).toEqual(['__proto__', 'constructor']);
  });

  it('may be missing, empty or without tags, which warns', () => {
    const warning = 'so only values pushed by asset number are taken, add tags: with a tag for each measuring point';
    for (const [text, what, line] of [
      ['', 'names no tag', 1],
      ['# nothing\n', 'names no tag', 1],
      ['tags:\n', 'names no tag', 1],
      ['sources: {}\ntags: {}\n', 'names no tag', 2],
    ] as const) {
      const { lines, configuration } = check({ 'tags.yaml': text });
      expect(lines, text).toEqual([`DIR/tags.yaml:${line}: warning: the file ${what}, ${warning}`]);
      expect(configuration!.tags.tags.size).toBe(0);
    }
  });

  it('warns of a source that no value uses', () => {
    const { lines } = check({ 'tags.yaml': 'sources:\n  idle: { host: true }\ntags: { T: { asset: 1 } }\n' });
    expect(lines).toEqual([
      'DIR/tags.yaml:2: warning: no value comes from source "idle", write from: idle at a value, or remove it',
    ]);
  });

  it('needs instrumentations where VALUES_PATH has their place', () => {
    const { errors } = check({
      'agent.env': 'VALUES_PATH=/v1/instrumentations/{instrumentation_id}/values',
      'tags.yaml':
        'tags:\n  A: { asset: 1, instrumentation: 2, values: { v: {} } }\n  B: { asset: 1, values: { w: {} } }\n',
    });
    expect(errors).toEqual([
      'DIR/tags.yaml:3: tag "B" has no instrumentation, which VALUES_PATH needs, add instrumentation: with its number',
    ]);
  });

  it('of ten thousand values is read, each on its line', () => {
    const tags = Array.from(
      { length: 2000 },
      (_, index) => `  T${index}: { asset: ${index + 1}, values: { a: { unit: 1 }, b: {}, c: {}, d: {}, e: {} } }`,
    );
    tags[1999] = '  T1999: { asset: 1, values: { A: {} } }';
    const { errors } = check({ 'tags.yaml': `tags:\n${tags.join('\n')}\n` });
    expect(errors).toEqual([
      'DIR/tags.yaml:2001: "A" of tag "T1999" is the same value as "a" of tag "T0" on line 2: key "a" of asset 1, give one of them another asset, key or group',
    ]);
  });
});
