import { readFileSync } from 'node:fs';
import { join } from 'node:path';
import { describe, expect, it } from 'vitest';
import { check, ENOUGH, makeFolder } from './folder.ts';

const PAGE = readFileSync(join(import.meta.dirname, '../../../docs/guide/reactions.md'), 'utf8');
/** Examples with the file name in the first line. */
const EXAMPLES = Object.fromEntries(
  [...PAGE.matchAll(/^```yaml\n# (\S+\.yaml)\n(.*?)^```$/gms)].map(([, file, text]) => [file!, text!]),
);
const ON = { 'agent.env': 'WRITES=on\n' };
const PLC = 'sources:\n  plc: { modbus: "tcp://127.0.0.1" }\n';
const DROP = '  drop: { csv: /srv/in }\n';
const BROKER = '  broker: { mqtt: "mqtt://127.0.0.1" }\n';

/** Returns the problems of a value with these members and of a rule that writes it. */
function problems(members: string, write = 'value: 1', rule = '') {
  const sources = PLC + (members.includes('drop') ? DROP : '') + (members.includes('broker') ? BROKER : '');
  const tags = `${sources}tags:\n  V: { asset: 1, values: { s: { ${members} } } }\n  T: { asset: 2, values: { v: {} } }\n`;
  const reactions = `reactions:\n  - name: r\n    on: value\n    if: { tag: T, key: v, above: 1 }\n    ${rule}\n    do: [{ write: { tag: V, key: s, ${write} } }]\n`;
  return check({ ...ON, 'tags.yaml': tags, 'reactions.yaml': reactions }).lines.join('\n');
}

const WRITABLE = 'from: plc, register: holding 1, writable: { min: 0, max: 100 }';

describe('WRITES', () => {
  it.each(['the environment', 'a credential', 'a file'])('is not accepted from %s', (origin) => {
    const credentials = makeFolder({ writes: 'on' });
    const environments: Record<string, Record<string, string>> = {
      'the environment': { WRITES: 'on' },
      'a credential': { CREDENTIALS_DIRECTORY: credentials },
      'a file': { WRITES_FILE: join(credentials, 'writes') },
    };
    expect(check({}, { ...ENOUGH, ...environments[origin] }).errors).toEqual([
      expect.stringContaining('set WRITES in agent.env'),
    ]);
  });
});

describe('writable values', () => {
  it('are accepted as documented in docs/guide/reactions.md', () => {
    expect(Object.keys(EXAMPLES)).toEqual(['tags.yaml', 'reactions.yaml']);
    expect(check({ ...ON, ...EXAMPLES }).lines).toEqual([]);
  });

  it.each([
    ['from: drop, column: s, writable: { min: 0, max: 1 }', 'values of csv sources cannot be written'],
    [
      'from: drop, column: s, writable: { min: 0, max: 1 }',
      'values of these kinds can be written: modbus, mqtt, nats, sparkplug, opcua',
    ],
    ['from: plc, register: input 1, writable: { min: 0, max: 1 }', 'input registers are read-only'],
    ['from: plc, register: holding 1, writable: { min: 0, max: 70000 }', 'max 70000 does not fit'],
    ['from: plc, register: holding 1, writable: { min: 5, max: 1 }', 'min 5 is greater than max 1'],
    ['from: plc, register: holding 1, map: { RUN: 1 }, writable: { min: 0, max: 1 }', 'a value with map'],
    ['from: plc, register: holding 1, writable: { min: 0, max: 9, max_rate: { change: 1, per: 0s } }', 'per "0s"'],
    ['from: broker, topic: a/+, writable: { min: 0, max: 1 }', 'a writable value requires write_to'],
    ['from: broker, topic: a/+, write_to: a/b, writable: { min: 0, max: 1 }', 'would read its own message'],
    ['from: broker, topic: a, write_to: b/#, writable: { min: 0, max: 1 }', 'contains a wildcard'],
    ['from: plc, register: holding 1', 'the value "s" of tag "V" is not writable'],
  ])('are reported if they cannot be written: %s', (members, reason) => {
    expect(problems(members)).toContain(reason);
  });
});

describe('writable values of one device', () => {
  const limits = 'writable: { min: 0, max: 1 }';
  const LINE_A = 'modbus: "tcp://PLC.example"';
  const LINE_B = 'modbus: "tcp://plc.example:502"';
  const SERIAL = 'modbus: "rtu:/dev/ttyUSB0"';
  const OPCUA_A = 'opcua: "opc.tcp://cell.example"';
  const OPCUA_B = 'opcua: "opc.tcp://CELL.example:4840/"';
  const MQTT = 'mqtt: "mqtt://broker.example"';
  const NATS = 'nats: "nats://n1.example,nats://n2.example"';
  const SPARKPLUG = 'sparkplug: "mqtt://broker.example"';

  /** Returns the problems of two writable values from the sources `a` and `b`. */
  function overlap([a, one]: readonly [string, string], [b, other]: readonly [string, string]) {
    const sources = `sources:\n  a: { ${a} }\n  b: { ${b} }\n`;
    const value = (from: string, members: string) => `{ from: ${from}, ${members}, ${limits} }`;
    const tags = `tags:\n  V: { asset: 1, values: { s: ${value('a', one)} } }\n  W: { asset: 2, values: { t: ${value('b', other)} } }\n`;
    const { lines } = check({ ...ON, 'tags.yaml': sources + tags });
    return lines.filter((line) => !line.includes('warning:')).join('\n');
  }

  it.each([
    [LINE_A, 'register: holding 1', LINE_B, 'register: 40002'],
    [LINE_A, 'register: holding 1, type: float32', LINE_B, 'register: holding 2'],
    [LINE_A, 'register: coil 7', LINE_B, 'register: 8'],
    [SERIAL, 'register: holding 1', SERIAL, 'register: holding 1'],
    [OPCUA_A, 'node: "i=85"', OPCUA_B, 'node: "ns=0;i=85"'],
    [MQTT, 'topic: a, write_to: v/set', MQTT, 'topic: b, write_to: v/set'],
    [NATS, 'subject: a, write_to: v.set', 'nats: "nats://n2.example"', 'subject: b, write_to: v.set'],
    [SPARKPLUG, 'metric: press/hydraulics/P', SPARKPLUG, 'metric: press/hydraulics/P'],
  ])('are rejected if they overlap: %s, %s; %s, %s', (a, one, b, other) => {
    const text = overlap([a, one], [b, other]);
    expect(text).toContain('tags.yaml:6:');
    expect(text).toContain('same target as "s" of tag "V" on line 5');
  });

  it.each([
    [LINE_A, 'register: holding 1, type: float32', LINE_B, 'register: holding 3'],
    [LINE_A, 'register: holding 1', LINE_B, 'register: coil 1'],
    [LINE_A, 'register: holding 1', `${LINE_B}, unit: 2`, 'register: holding 1'],
    [OPCUA_A, 'node: "ns=1;i=85"', OPCUA_B, 'node: "i=85"'],
    [MQTT, 'topic: a, write_to: v/set', MQTT, 'topic: b, write_to: w/set'],
    [`${SPARKPLUG}, group: A`, 'metric: press/P', `${SPARKPLUG}, group: B`, 'metric: press/P'],
  ])('are accepted if they do not overlap: %s, %s; %s, %s', (a, one, b, other) => {
    expect(overlap([a, one], [b, other])).toBe('');
  });

  it('may overlap a value that is only read', () => {
    const values = `{ s: { from: plc, register: holding 1, ${limits} }, t: { from: plc, register: holding 1 } }`;
    expect(check({ ...ON, 'tags.yaml': `${PLC}tags: { V: { asset: 1, values: ${values} } }\n` }).lines).toEqual([]);
  });
});

describe('write action', () => {
  it.each([
    ['value: 101', '', '101 is not within the writable range of 0 to 100'],
    ['value: "high"', '', 'value "high" is not a number'],
    ['value: "{{content.rule}}"', '', '{{content.rule}} is never a number'],
    ['value: 1', 'max_age: 0', 'requires a maximum age'],
  ])('is reported with %s %s', (write, rule, reason) => {
    expect(problems(WRITABLE, write, rule)).toContain(reason);
  });

  it('accepts a template for the value of the event', () => {
    expect(problems(WRITABLE, 'value: "{{content.data.value}}"')).toBe('');
  });

  it('is reported with an unknown tag or key', () => {
    const tags = 'tags: { V: { asset: 1, values: { s: {} } } }\n';
    const reactions = (tag: string, key: string) =>
      `reactions:\n  - { name: r, on: threshold_reached, do: [{ write: { tag: ${tag}, key: ${key}, value: 1 } }] }\n`;
    const lines = (tag: string, key: string) =>
      check({ ...ON, 'tags.yaml': tags, 'reactions.yaml': reactions(tag, key) }).lines.join('\n');
    expect(lines('W', 's')).toContain('tags.yaml contains no tag "W"');
    expect(lines('V', 'x')).toContain('has no value "x"');
  });
});
