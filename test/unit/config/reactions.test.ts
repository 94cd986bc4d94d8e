import { readFileSync } from 'node:fs';
import { join } from 'node:path';
import { describe, expect, it } from 'vitest';
import { isMembers, type Outline, outlineAt, pathsOf } from '../../../src/config/event-outline.ts';
import type { JsonSchema } from '../../../src/contract/events/shape.ts';
import { eventSchema } from '../../../src/contract/events/shapes.ts';
import { EVENT_TYPES } from '../../../src/contract/events.ts';
import { check } from './folder.ts';

const TAGS = `sources: { broker: { mqtt: "mqtt://h" } }
tags:
  FT-101: { asset: 881, instrumentation: 4711, values: { v: { from: broker, topic: a } } }
  PT-7: { asset: 882 }
  PT-8: { asset: 883 }
`;
const checkReactions = (text: string, env = '') =>
  check({ 'agent.env': env, 'tags.yaml': TAGS, 'reactions.yaml': text });

const reactionsOf = (text: string) => {
  const { configuration, errors } = checkReactions(text);
  expect(errors).toEqual([]);
  return configuration!.reactions;
};

/** One rule with an `if`, on line 4. */
const warningsFor = (on: string, condition: string) =>
  checkReactions(`reactions:\n  - name: r\n    on: ${on}\n    if: ${condition}\n    do: [{ log: info }]\n`).lines;
const NEVER = 'DIR/reactions.yaml:4: warning: the rule can never match: ';

describe('reactions.yaml', () => {
  it('is read as documented in docs/interface.md', () => {
    const reactions = reactionsOf(`reactions:
  - name: close-inlet-valve
    on: threshold_reached            # an event type, a list of them, or "*"
    if: { tag: FT-101, threshold.type: high, data.value: { above: 20 } }
    cooldown: 60s                    # per reaction and object
    max_age: 10m                     # the default: an event that occurred longer ago is only logged
    do:
      - run: [/opt/site/close-valve, "FT-101"]   # the event's JSON on standard input; never through a shell
        timeout: 10s
      - post: http://127.0.0.1:1880/alarm
      - publish: { to: broker, topic: site/alarms }
      - log: warn
`);
    expect(reactions).toEqual([
      {
        name: 'close-inlet-valve',
        on: ['threshold_reached'],
        conditions: [
          { kind: 'tag', anyOf: [{ tag: 'FT-101', asset: 881, instrumentation: 4711 }] },
          { kind: 'equals', path: 'threshold.type', anyOf: ['high'] },
          { kind: 'range', path: 'data.value', above: 20 },
        ],
        cooldownMs: 60_000,
        maxAgeMs: 600_000,
        actions: [
          { kind: 'run', command: ['/opt/site/close-valve', 'FT-101'], timeoutMs: 10_000 },
          { kind: 'post', url: 'http://127.0.0.1:1880/alarm', timeoutMs: 10_000 },
          { kind: 'publish', broker: 'broker', topic: 'site/alarms', retain: false },
          { kind: 'log', level: 'warn' },
        ],
      },
    ]);
  });

  it('applies defaults, and preserves the members of a body', () => {
    const [all, listed] = reactionsOf(`reactions:
  - { name: all, on: "*", do: [ { run: [node, 5, true], working_folder: /srv }, { post: "https://h/x", body: { a: [1, null] }, headers: { X-Site: 7 }, timeout: 5s } ] }
  - name: listed
    on: [asset_appeared, asset_disappeared, asset_appeared]
    if: { asset.serial_number: [A1, "2"], asset.id: 5 }
    max_age: 0
    do: [ { publish: { to: broker, topic: "site/{{content.asset.id}}", body: "hi", retain: true } } ]
`);
    expect(all).toEqual({
      name: 'all',
      on: '*',
      conditions: [],
      cooldownMs: 0,
      maxAgeMs: 600_000,
      actions: [
        { kind: 'run', command: ['node', '5', 'true'], timeoutMs: 30_000, workingFolder: '/srv' },
        { kind: 'post', url: 'https://h/x', body: { a: [1, null] }, headers: { 'X-Site': '7' }, timeoutMs: 5000 },
      ],
    });
    expect(listed).toMatchObject({
      on: ['asset_appeared', 'asset_disappeared'],
      maxAgeMs: 0,
      conditions: [
        { kind: 'equals', path: 'asset.serial_number', anyOf: ['A1', '2'] },
        { kind: 'equals', path: 'asset.id', anyOf: [5] },
      ],
      actions: [{ topic: 'site/{{content.asset.id}}', body: 'hi', retain: true }],
    });
  });

  it.each(['', '# none\n', 'reactions: []\n', 'reactions:\n'])('can be empty: %j', (text) => {
    expect(reactionsOf(text)).toEqual([]);
  });

  it('is optional', () => expect(check({}).lines).toEqual([]));

  it('reports no resulting problems if tags.yaml is unreadable', () => {
    const { errors } = check({
      'tags.yaml': 'tags:\n\tA: 1\n',
      'reactions.yaml': 'reactions: [ { name: r, on: "*", if: { tag: A }, do: [ { publish: { to: b, topic: t } } ] } ]',
    });
    expect(errors).toEqual(['DIR/tags.yaml:2: YAML does not allow tabs for indentation, indent with spaces']);
  });
});

describe('reaction that can never match', () => {
  it.each([
    ['threshold_reached', '{ threshold.type: hihg }', '"threshold.type" is never "hihg", use "high"'],
    ['threshold_reached', '{ data.vale: 3 }', 'the content of threshold_reached has no "data.vale", use "data.value"'],
    [
      'threshold_reached',
      '{ content.data.key: x }',
      'the content of threshold_reached has no "content.data.key"; paths start in content, use "data.key"',
    ],
    [
      'threshold_reached',
      '{ data.value: { above: 20, below: 20 } }',
      'no "data.value" is above 20 and below 20, set above to a number less than below',
    ],
    ['threshold_reached', '{ data.value: "20" }', '"data.value" is a number, never "20", use 20 without quotes'],
    ['threshold_reached', '{ data.key: true }', '"data.key" is text, never true, use "true" in quotes'],
    [
      'threshold_reached',
      '{ threshold.type: { above: 5 } }',
      '"threshold.type" is text, but above and below compare numbers, use one of high, low, deviation',
    ],
    [
      'threshold_reached',
      '{ data.unit: bar }',
      '"data.unit" is not a single value, use one of "data.unit.code", "data.unit.symbol"',
    ],
    [
      'instrumentation_appeared',
      '{ tag: PT-7 }',
      'instrumentation_appeared contains only an instrumentation, and tag "PT-7" has none, add instrumentation: to the tag in tags.yaml',
    ],
    [
      '[node_appeared, product_status_changed]',
      '{ tag: FT-101 }',
      'these events contain neither asset nor instrumentation, remove the tag',
    ],
    [
      '[asset_appeared, instrumentation_appeared]',
      '{ asset.serial_number: x, instrumentation.tag: y }',
      'no event type in "on" contains every member in "if", use one rule per event type',
    ],
    [
      '"*"',
      '{ nothing.like.it: 1 }',
      'the content of these events has no "nothing.like.it", use a path of the event, for example "data.value"',
    ],
  ])('is reported for %s if %s', (on, condition, reason) => {
    expect(warningsFor(on, condition)).toEqual([`${NEVER}${reason}`]);
  });

  it.each([
    ['asset_updated', 'asset.status.code: failure', '"asset.status.code"', 'use "asset.status.id"'],
    [
      'edge_device_updated',
      'edge_device.status.code: offline',
      '"edge_device.status.code"',
      'use "edge_device.status.id"',
    ],
    [
      'asset_health_condition_updated',
      'health_conditions.asset_status.code: failure',
      '"health_conditions.asset_status.code"',
      'use "health_conditions.asset_status.id"',
    ],
    ['node_disappeared', 'node.tag: N-1', '"node.tag"', 'use one of "node.id", "node.name"'],
    ['asset_value_created', 'value.unit.code: bar', '"value.unit.code"', 'use "value.unit.id"'],
    ['asset_appeared', 'user.code: 5', '"user.code"', 'use "user.id"'],
  ])(
    'is reported for members outside the specification, but remains valid: on %s if %s',
    (on, condition, path, instead) => {
      const checked = checkReactions(
        `reactions:\n  - { name: r, on: ${on}, if: { ${condition} }, do: [{ log: info }] }\n`,
      );
      expect(checked.lines).toEqual([
        `DIR/reactions.yaml:2: warning: the rule probably never matches: the specification does not mention ${path} in ${on}, ${instead}`,
      ]);
      expect(checked.configuration?.reactions).toHaveLength(1);
    },
  );

  it('is reported for the entire list, or only for an impossible entry', () => {
    expect(warningsFor('instrumentation_appeared', '{ tag: [PT-7, PT-8] }')).toEqual([
      `${NEVER}instrumentation_appeared contains only an instrumentation, and none of the tags has one, add instrumentation: to the tags in tags.yaml`,
    ]);
    expect(warningsFor('node_appeared', '{ tag: [FT-101, PT-7] }')).toEqual([
      `${NEVER}node_appeared contains neither asset nor instrumentation, remove the tags`,
    ]);
    const one = 'DIR/reactions.yaml:4: warning: this tag can never match: ';
    expect(warningsFor('instrumentation_appeared', '{ tag: [FT-101, PT-7] }')).toEqual([
      `${one}instrumentation_appeared contains only an instrumentation, and tag "PT-7" has none, add instrumentation: to the tag in tags.yaml`,
    ]);
    expect(warningsFor('threshold_reached', '{ threshold.type: [high, hihg] }')).toEqual([
      `${one}"threshold.type" is never "hihg", use "high"`,
    ]);
    expect(warningsFor('threshold_reached', '{ tag: [FT-101, PT-7], data.value: [20, null] }')).toEqual([]);
    // A condition that can match one of the types is valid.
    expect(warningsFor('[instrumentation_appeared, asset_appeared]', '{ tag: [FT-101, PT-7] }')).toEqual([]);
  });

  it('is reported at the location of the unknown tag', () => {
    const rule =
      'reactions:\n  - name: r\n    on: "*"\n    if:\n      tag:\n        - FT-101\n        - PT7\n    do: [{ log: info }]\n';
    expect(checkReactions(rule).lines).toEqual(['DIR/reactions.yaml:7: tags.yaml contains no tag "PT7", use "PT-7"']);
  });

  it.each([
    [
      'threshold_reached',
      '{ tag: FT-101, threshold.type: [high, low], data.value: { above: 1, below: 2 }, threshold.value_in_threshold_unit: null }',
    ],
    ['instrumentation_appeared', '{ tag: FT-101 }'],
    ['event_created', '{ tag: PT-7, event.type.code: calibration }'],
    ['asset_specifications_updated', '{ asset.specifications.eh.pcps.value: "x" }'],
    ['asset_appeared', '{ asset.serial_number: 12345, asset.not_yet_known: null }'],
    ['asset_value_created', '{ value.value: { above: 3 }, value.key: flow }'],
    ['[asset_appeared, threshold_reached]', '{ data.value: 1 }'],
    ['"*"', '{ asset.id: 5 }'],
    ['asset_updated', '{ asset.status.id: 4 }'],
    ['[node_appeared, node_disappeared]', '{ node.tag: N-1 }'],
    ['asset_values_created', '{ values.key: flow, values.0.data.value: { above: 3 } }'],
    ['event_created', '{ event.assets.id: 881, event.type.code: calibration }'],
    ['asset_health_condition_updated', '{ asset_status.code: failure, health_conditions.diagnosis_code: F825 }'],
  ])('is not reported if it can match: on %s if %s', (on, condition) => {
    expect(warningsFor(on, condition)).toEqual([]);
  });

  it('is reported if the platform never sends its event', () => {
    const rule = 'reactions:\n  - name: r\n    on: [asset_updated, threshold_reached]\n    do: [{ log: info }]\n';
    expect(checkReactions(rule, 'WEBHOOK_URL=https://gw.example/hook').lines).toEqual([
      'DIR/reactions.yaml:3: warning: asset_updated is not in WEBHOOK_EVENTS, so the platform does not send it, add it to WEBHOOK_EVENTS in agent.env',
    ]);
    expect(checkReactions(rule, 'WEBHOOK_URL=https://gw.example/hook\nWEBHOOK_EVENTS=*').lines).toEqual([]);
    expect(checkReactions(rule).lines).toEqual([]);
  });

  it('is detected by an outline that contains every member in the contract schemas', () => {
    const missing: string[] = [];
    const compare = (type: (typeof EVENT_TYPES)[number], schema: JsonSchema, path: string): void => {
      const parts = (schema.anyOf as JsonSchema[] | undefined) ?? [];
      for (const part of [schema, ...parts]) {
        if (part.items) compare(type, part.items as JsonSchema, path);
        for (const [member, below] of Object.entries(
          (part.properties as Record<string, JsonSchema> | undefined) ?? {},
        )) {
          const at = path === '' ? member : `${path}.${member}`;
          const outline: Outline | undefined = outlineAt(type, at);
          if (outline === undefined) missing.push(`${type}: ${at}`);
          else if (isMembers(outline)) compare(type, below, at);
        }
      }
    };
    for (const type of EVENT_TYPES) {
      compare(type, (eventSchema(type).properties as Record<string, JsonSchema>).content!, '');
    }
    expect(missing).toEqual([]);
  });

  it('is detected by an outline that matches the specification fixtures', () => {
    // The specification states only that these attributes can change.
    const onlyFilters =
      /^(asset|edge_device)_updated .*\.(serial_number|description|last_seen_at|production_date|software_version)$/;
    const found = new Set<string>();
    const collect = (value: unknown, path: string): void => {
      if (Array.isArray(value)) for (const one of value) collect(one, path);
      else if (typeof value !== 'object' || value === null) found.add(path);
      else for (const [name, member] of Object.entries(value)) collect(member, path === '' ? name : `${path}.${name}`);
    };
    for (const type of EVENT_TYPES) {
      found.clear();
      const file = join(import.meta.dirname, `../../fixtures/events/${type}.json`);
      collect(JSON.parse(readFileSync(file, 'utf8')).content, '');
      const shown = pathsOf([type]).filter(
        (path) => outlineAt(type, path) !== 'open' && !onlyFilters.test(`${type} ${path}`),
      );
      expect([...found].filter((path) => outlineAt(type, path) !== 'open').sort(), type).toEqual(shown.sort());
    }
  });
});
