import { describe, expect, it } from 'vitest';
import { HOST_READING_NAMES } from '../../../src/contract/host-readings.ts';
import { originOf } from '../sources/sink-double.ts';
import { check } from './folder.ts';

const sourceOf = (kind: string, name: string, everyMs: number, spec: unknown) => ({
  kind,
  name,
  everyMs,
  timeFrom: 'source',
  spec,
});

const EXAMPLE = `sources:
  plc1:   { modbus: "tcp://192.168.0.5:502", unit: 1, every: 1s }
  broker: { mqtt: "mqtt://127.0.0.1:1883" }
  self:   { host: true, every: 10s }
tags:
  FT-101:
    asset: 881
    instrumentation: 4711
    values:
      flow:        { unit: 12, group: process, from: plc1, register: holding 1013, type: float32, byte_order: CDAB, scale: 0.1, offset: -40, every: 200ms }
      temperature: { unit: { code: degree_celsius }, from: broker, topic: site/ft101, at: /temp }
  GW-01:
    asset: 900
    values:
      load:        { from: self, reading: load1 }
`;

const MODBUS_DEFAULTS = {
  unit: 1,
  connections: 1,
  timeoutMs: 3000,
  pauseMs: 0,
  settleMs: 0,
  maxRegisters: 120,
  isAnyUnit: false,
  isSunSpec: false,
  closeAfterPoll: false,
};

const modbusOf = (host: string) => ({ ...MODBUS_DEFAULTS, address: { transport: 'tcp', host, port: 502 } });

const registerOf = (table: string, address: number, type: string, more = {}) => ({
  table,
  address,
  length: type.endsWith('32') ? 2 : 1,
  type,
  wordsReversed: false,
  bytesSwapped: false,
  ...more,
});

const tagsOf = (text: string) => {
  const { configuration, lines } = check({ 'tags.yaml': text });
  expect(lines).toEqual([]);
  return configuration!.tags;
};

describe('tags.yaml', () => {
  it('is read as documented in docs/interface.md', () => {
    const { sources, tags } = tagsOf(EXAMPLE);
    expect([...sources.values()]).toEqual([
      sourceOf('modbus', 'plc1', 1000, modbusOf('192.168.0.5')),
      sourceOf('mqtt', 'broker', 0, {
        url: 'mqtt://127.0.0.1:1883',
        version: 5,
        qos: 1,
        sessionExpiryMs: 604_800_000,
      }),
      sourceOf('host', 'self', 10_000, true),
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
          from: originOf(
            'modbus',
            'plc1',
            { register: registerOf('holding', 1_013, 'float32', { wordsReversed: true }) },
            { everyMs: 200, scale: 0.1, offset: -40 },
          ),
        },
        {
          key: 'temperature',
          unit: { code: 'degree_celsius' },
          from: originOf(
            'mqtt',
            'broker',
            { topic: 'site/ft101', template: 'site/ft101', at: '/temp' },
            { everyMs: 0 },
          ),
        },
      ],
    });
    expect(tags.get('GW-01')!.values.get('load')).toEqual({
      key: 'load',
      from: originOf('host', 'self', { reading: 'load1' }, { everyMs: 10_000 }),
    });
  });

  it('accepts Modbus addresses over TCP and serial lines', () => {
    const { sources } = tagsOf(`sources:
  v6: { modbus: "tcp://[fe80::1]:1502", unit: 0, connections: 2, timeout: 500ms, framing: rtu, pause: 50ms, max_registers: 16, close_after_poll: true }
  a: { modbus: "rtu:/dev/serial/by-id/usb-FTDI-if00-port0" }
  b: { modbus: "rtu:/dev/ttyS1", baud: 9600, parity: none, stop_bits: 2, unit: 3 }
tags:
  T:
    asset: 1
    values: { x: { from: v6, register: coil 1 }, y: { from: a, register: coil 1 }, z: { from: b, register: coil 1 } }
`);
    const rtu = { transport: 'rtu', path: '/dev/ttyS1', baud: 9600, parity: 'none', stopBits: 2 };
    expect([...sources.values()].map(({ spec }) => spec)).toEqual([
      {
        ...MODBUS_DEFAULTS,
        address: { transport: 'tcp', host: 'fe80::1', port: 1502, framing: 'rtu' },
        unit: 0,
        connections: 2,
        timeoutMs: 500,
        pauseMs: 50,
        maxRegisters: 16,
        closeAfterPoll: true,
      },
      {
        ...MODBUS_DEFAULTS,
        address: { ...rtu, path: '/dev/serial/by-id/usb-FTDI-if00-port0', baud: 19_200, parity: 'even', stopBits: 1 },
        timeoutMs: 1000,
      },
      { ...MODBUS_DEFAULTS, address: rtu, unit: 3, timeoutMs: 1000 },
    ]);
  });

  it('applies defaults', () => {
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
      f: { from: m, register: input 3, type: int32, byte_order: DCBA, scale: 0.1 }
      i: { from: m, register: 400004, bit: 3 }
      g:
  101: { asset: 2 }
`);
    expect([...sources.values()]).toEqual([
      sourceOf('modbus', 'm', 1000, modbusOf('plc')),
      sourceOf('host', 'h', 10_000, true),
      sourceOf('simulate', 's', 1000, { periodMs: 60_000 }),
    ]);
    expect([...tags.get('T')!.values.values()].map((value) => value.from)).toEqual([
      originOf('modbus', 'm', { register: registerOf('input', 1, 'uint16') }),
      originOf('modbus', 'm', { register: registerOf('coil', 7, 'bool') }),
      originOf('simulate', 's', { shape: 'sine', low: 0, high: 100 }),
      originOf('simulate', 's', { shape: 'walk', low: -5, high: 5 }),
      originOf('host', 'h', { reading: 'disk_free:/var' }, { everyMs: 10_000 }),
      originOf(
        'modbus',
        'm',
        { register: registerOf('input', 3, 'int32', { wordsReversed: true, bytesSwapped: true }) },
        { scale: 0.1 },
      ),
      originOf('modbus', 'm', { register: registerOf('holding', 3, 'bool', { bits: { lowest: 3, count: 1 } }) }),
      undefined,
    ]);
    expect(tags.get('101')).toEqual({ name: '101', asset: 2, values: new Map() });
  });

  it('runs a program continuously unless its source has an interval', () => {
    const { sources, tags } = tagsOf(`sources:
  a: { exec: [sh, -c, "true"] }
  b: { exec: [sh, -c, "true"], every: 30s, timeout: 10s }
tags: { T: { asset: 1, values: { x: { from: a }, y: { from: b } } } }
`);
    const spec = { command: ['sh', '-c', 'true'], format: 'ndjson' };
    expect([...sources.values()]).toEqual([
      sourceOf('exec', 'a', 0, spec),
      sourceOf('exec', 'b', 30_000, { ...spec, timeoutMs: 10_000 }),
    ]);
    expect([...tags.get('T')!.values.values()].map(({ from }) => from?.everyMs)).toEqual([0, 30_000]);
  });

  it('rejects an interval of a value that a program prints, and a timeout out of range', () => {
    const { lines } = check({
      'tags.yaml': `sources: { a: { exec: [sh], timeout: 10ms } }
tags: { T: { asset: 1, values: { x: { from: a, every: 1s } } } }
`,
    });
    expect(lines).toEqual([
      expect.stringMatching(/timeout "10ms" must be between 100ms and 7d/),
      expect.stringMatching(/"every" is not supported by the exec source "a"/),
    ]);
  });

  it('converts keys and groups to lower case, as the platform does', () => {
    const { tags } = tagsOf('tags: { T: { asset: 1, values: { Flow: { group: Process } } } }');
    expect(tags.get('T')!.values.get('flow')).toEqual({ key: 'flow', group: 'process' });
  });

  it('accepts the same key in two groups and in two assets', () => {
    tagsOf(
      'tags: { T: { asset: 1, values: { v: {} } }, U: { asset: 1, values: { v: { group: g } } }, W: { asset: 2, values: { v: {} } } }',
    );
  });

  it('resolves anchors and merge keys up to a limit', () => {
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

  it('accepts every reading of a host source', () => {
    const values = HOST_READING_NAMES.map((name, index) => `v${index}: { from: self, reading: ${name} }`).join(', ');
    tagsOf(`sources: { self: { host: true } }\ntags: { T: { asset: 1, values: { ${values} } } }`);
  });

  it.each([
    ['fast', '{}'],
    ['full', '&anchor {}'],
  ])('uses names as written, even if YAML reads them as numbers (%s parser)', (_, empty) => {
    const { configuration, lines } = check({
      'tags.yaml': `sources:
  0815: { mqtt: "mqtt://127.0.0.1:1883" }
tags:
  101E1:
    asset: 1
    values:
      1.50: { from: 0815, topic: "a/{tag}", map: { 0x1F: 5, on: 1 } }
      true: { from: "0815", topic: 0017880103E75304 }
      pushed: ${empty}
`,
      'reactions.yaml':
        'reactions: [{ name: 007, on: threshold_reached, if: { tag: [101E1] }, do: [{ log: info }] }]\n',
    });
    expect(lines).toEqual([]);
    const { sources, tags } = configuration!.tags;
    const { values } = tags.get('101E1')!;
    expect([...sources.keys(), ...values.keys()]).toEqual(['0815', '1.50', 'true', 'pushed']);
    expect([...values.values()].map(({ from }) => (from?.spec as { topic: string } | undefined)?.topic)).toEqual([
      'a/101E1',
      '0017880103E75304',
      undefined,
    ]);
    expect(values.get('1.50')!.map).toEqual({ numbers: { '31': 5, '0x1F': 5, on: 1 }, passesNumbers: false });
    expect(configuration!.reactions[0]).toMatchObject({ name: '007', conditions: [{ anyOf: [{ tag: '101E1' }] }] });
  });

  it('uses arguments of programs and texts of availability topics as written', () => {
    const { configuration, lines } = check({
      'tags.yaml': `sources:
  x: { exec: [/bin/true, 0815, 0x1F, 1.50, 1e3, True] }
  b: { mqtt: "mqtt://127.0.0.1:1883", availability: s, payload_available: 01, payload_not_available: 00 }
tags: { T: { asset: 1, values: { v: { from: b, topic: t, payload_available: 0x1F }, w: { from: x } } } }
`,
      'reactions.yaml':
        'reactions: [{ name: r, on: threshold_reached, do: [{ run: [/bin/true, 007] }, { post: "http://127.0.0.1:1/", headers: { X-Id: 0x1F } }] }]\n',
    });
    expect(lines).toEqual([]);
    const { sources, tags } = configuration!.tags;
    expect(sources.get('x')!.spec).toMatchObject({ command: ['/bin/true', '0815', '0x1F', '1.50', '1e3', 'True'] });
    expect(sources.get('b')!.spec).toMatchObject({ availability: { available: '1', unavailable: '0' } });
    expect(tags.get('T')!.values.get('v')!.from!.spec).toMatchObject({ availability: { available: '0x1f' } });
    const [run, post] = configuration!.reactions[0]!.actions.map((action) => JSON.stringify(action));
    expect(run).toContain('"007"');
    expect(post).toContain('"0x1F"');
  });

  it.each(['null', '~', ''])('does not use "%s" as text', (nothing) => {
    const { lines } = check({
      'tags.yaml': `sources: { b: { mqtt: "mqtt://127.0.0.1:1883", client_id: ${nothing} } }\ntags: { T: { asset: 1, values: { v: { from: b, topic: t } } } }\n`,
    });
    expect(lines).toEqual([expect.stringContaining('nothing is not a client ID')]);
  });

  it('accepts names with a special meaning in JavaScript', () => {
    const { tags } = tagsOf('tags: { __proto__: { asset: 1 }, constructor: { asset: 2, values: { toString: {} } } }');
    expect([...tags.keys()]).toEqual(['__proto__', 'constructor']);
  });

  it('causes a warning if it is missing or empty, or contains no tags', () => {
    const warning = 'so only values pushed by asset number are accepted, add tags: with one tag per measuring point';
    for (const [text, what, line] of [
      ['', 'contains no tags', 1],
      ['# nothing\n', 'contains no tags', 1],
      ['tags:\n', 'contains no tags', 1],
      ['sources: {}\ntags: {}\n', 'contains no tags', 2],
    ] as const) {
      const { lines, configuration } = check({ 'tags.yaml': text });
      expect(lines, text).toEqual([`DIR/tags.yaml:${line}: warning: the file ${what}, ${warning}`]);
      expect(configuration!.tags.tags.size).toBe(0);
    }
  });

  it('warns about a source that no value uses', () => {
    const { lines } = check({ 'tags.yaml': 'sources:\n  idle: { host: true }\ntags: { T: { asset: 1 } }\n' });
    expect(lines).toEqual([
      'DIR/tags.yaml:2: warning: no value uses source "idle", add from: idle to a value, or remove the source',
    ]);
  });

  it('must specify instrumentations if VALUES_PATH contains the placeholder for them', () => {
    const { errors } = check({
      'agent.env': 'VALUES_PATH=/v1/instrumentations/{instrumentation_id}/values',
      'tags.yaml':
        'tags:\n  A: { asset: 1, instrumentation: 2, values: { v: {} } }\n  B: { asset: 1, values: { w: {} } }\n',
    });
    expect(errors).toEqual([
      'DIR/tags.yaml:3: tag "B" has no instrumentation, which VALUES_PATH requires, add instrumentation: with its number',
    ]);
  });

  it('provides the line number of every value in a file with ten thousand values', () => {
    const tags = Array.from(
      { length: 2000 },
      (_, index) => `  T${index}: { asset: ${index + 1}, values: { a: { unit: 1 }, b: {}, c: {}, d: {}, e: {} } }`,
    );
    tags[1999] = '  T1999: { asset: 1, values: { A: {} } }';
    const { errors } = check({ 'tags.yaml': `tags:\n${tags.join('\n')}\n` });
    expect(errors).toEqual([
      'DIR/tags.yaml:2001: "A" of tag "T1999" is the same value as "a" of tag "T0" on line 2: key "a" of asset 1, change the asset, key or group of one of them',
    ]);
  });
});

describe('like block', () => {
  it('provides shared values that tags can override', () => {
    const { tags } = tagsOf(`sources: { b: { mqtt: "mqtt://h" } }
like:
  pump:
    flow: { unit: 12, from: b, topic: "plant/{tag}/{asset}/flow", deadband: 0.5, max_silence: 10m }
    note: { unit: 1 }
tags:
  P-7: { asset: 7, like: pump }
  P-8: { asset: 8, like: pump, values: { Flow: { unit: 13, deadband: "2%" }, own: { from: b, topic: "{tag}/x" } } }
`);
    const spec = (tag: string, key: string) => tags.get(tag)!.values.get(key)!.from;
    expect(spec('P-7', 'flow')).toMatchObject({
      spec: { topic: 'plant/P-7/7/flow', template: 'plant/{tag}/{asset}/flow' },
      shaping: { deadband: { units: 0.5 }, maxSilenceMs: 600_000 },
    });
    expect(spec('P-8', 'flow')).toMatchObject({
      spec: { topic: 'plant/P-8/8/flow' },
      shaping: { deadband: { share: 0.02 } },
    });
    expect(tags.get('P-8')!.values.get('flow')).toMatchObject({ unit: { id: 13 } });
    expect([...tags.get('P-8')!.values.keys()]).toEqual(['flow', 'note', 'own']);
    expect(spec('P-8', 'own')).toMatchObject({ spec: { topic: 'P-8/x' } });
  });

  it('reports a problem once, at its location', () => {
    const { errors } = check({
      'tags.yaml': `sources: { b: { mqtt: "mqtt://h" } }
like:
  pump: { flow: { from: b, topic: "{instrumentation}/x" }, bad: { from: b, topic: "a+" }, lost: { from: c, topic: a } }
tags:
  P-7: { asset: 7, like: pump, instrumentation: 1 }
  P-8: { asset: 8, like: pump }
  P-9: { asset: 9, like: pumps }
`,
    });
    expect(errors).toEqual([
      'DIR/tags.yaml:3: tag "P-8" has no instrumentation for {instrumentation}, add instrumentation: with its number',
      'DIR/tags.yaml:3: topic "a+" contains a wildcard (+ or #) that is not a whole level, use a value such as site/+/flow',
      'DIR/tags.yaml:3: unknown source "c", use "b"',
      'DIR/tags.yaml:7: unknown template "pumps", use "pump"',
    ]);
  });
});
