import { describe, expect, it } from 'vitest';
import type { Condition, Reaction } from '../../../src/config/reactions.ts';
import { EVENT_TYPES } from '../../../src/contract/events.ts';
import { filtersFor, narrowedTypes } from '../../../src/webhook/filters.ts';

const equals = (path: string, ...anyOf: (string | number | boolean | null)[]): Condition => ({
  kind: 'equals',
  path,
  anyOf,
});
const rule = (on: Reaction['on'], ...conditions: Condition[]): Reaction => ({
  name: 'r',
  on,
  conditions,
  cooldownMs: 0,
  maxAgeMs: 0,
  actions: [{ kind: 'log', level: 'info' }],
});
const filters = (...reactions: Reaction[]) => filtersFor(reactions, EVENT_TYPES);

describe('webhook filters (platform 6.3)', () => {
  it('contain the members used in all rule conditions for a type', () => {
    expect(
      filters(
        rule(['asset_values_created', 'instrumentation_values_created'], equals('values.key', 'flow', 'level')),
        rule(['asset_values_created'], equals('values.key', 'ph')),
        rule(['asset_updated'], equals('asset.status.id', 4), equals('asset.id', 881)),
        rule(['asset_updated'], { kind: 'range', path: 'asset.product.id', above: 0 }),
        rule(['edge_device_updated'], equals('edge_device.software_version', '1.2')),
        rule(['asset_specifications_updated'], equals('asset.specifications.eh.pcps.ph.value', '7')),
        rule(['event_specifications_updated'], equals('event.specifications.note.unit', 'x')),
        rule(['event_created'], equals('event.type.code', 'calibration')),
      ),
    ).toEqual({
      asset_values_created: ['flow', 'level', 'ph'],
      instrumentation_values_created: ['flow', 'level'],
      asset_updated: ['product', 'status'],
      edge_device_updated: ['software_version'],
      asset_specifications_updated: ['eh.pcps.ph'],
      event_specifications_updated: ['note'],
      event_created: ['calibration'],
    });
  });

  it('contain only registered types with a rule', () => {
    const status = rule(['asset_updated'], equals('asset.status.id', 4));
    expect(filtersFor([status], ['threshold_reached', 'asset_values_created'])).toEqual({});
    expect(filters()).toEqual({});
  });

  it('match WEBHOOK_PROPERTIES for its types, regardless of the rules', () => {
    const rules = [rule(['asset_updated'], equals('asset.status.id', 4)), rule(['event_created'])];
    const explicit = {
      asset_updated: ['tenant'],
      event_document_created: ['calibration'],
      event_created: ['x'],
      node_appeared: ['y'],
    };
    const types = ['asset_updated', 'event_created', 'event_document_created'];
    expect(filtersFor(rules, types, explicit)).toEqual({
      asset_updated: ['tenant'],
      event_created: ['x'],
      event_document_created: ['calibration'],
    });
    expect(narrowedTypes(rules, types, explicit)).toEqual(['asset_updated', 'event_created']);
    expect(filtersFor(rules, types, { asset_updated: [] })).toEqual({});
    expect(narrowedTypes(rules, types, { asset_updated: ['status', 'tenant'], event_created: [] })).toEqual([]);
  });

  it('are empty for all types if a rule matches "*"', () => {
    const status = rule(['asset_updated'], equals('asset.status.id', 4));
    expect(filters(status, rule('*', equals('event.type.code', 'calibration')))).toEqual({});
  });

  it('are never set for types that tags and holds require', () => {
    const types = EVENT_TYPES.filter((type) => /appeared|association|threshold|value_created|document/.test(type));
    const tag: Condition = { kind: 'tag', anyOf: [{ tag: 'FT-101', asset: 881, instrumentation: 4711 }] };
    expect(types).toHaveLength(13);
    for (const type of types) {
      const conditions = [equals('asset.id', 881), equals('event.type.code', 'x'), equals('threshold.type', 'high')];
      expect(filters(rule([type], tag, ...conditions)), type).toEqual({});
    }
  });

  it.each<[string, Reaction]>([
    ['no condition', rule(['asset_updated'])],
    ['only the asset id', rule(['asset_updated'], equals('asset.id', 881))],
    [
      'a serial number, which can also identify the asset',
      rule(['asset_updated'], equals('asset.serial_number', 'A1')),
    ],
    ['null, which also matches a missing member', rule(['asset_updated'], equals('asset.status.id', null, 4))],
    [
      'a value in addition to the key',
      rule(['asset_values_created'], equals('values.key', 'flow'), {
        kind: 'range',
        path: 'values.data.value',
        above: 1,
      }),
    ],
    ['a list index', rule(['asset_values_created'], equals('values.0.key', 'flow'))],
    ['a key that is not text', rule(['asset_values_created'], equals('values.key', 'flow', 7))],
    ['null as a key', rule(['asset_values_created'], equals('values.key', 'flow', null))],
    [
      'an undocumented member of a specification',
      rule(['asset_specifications_updated'], equals('asset.specifications.ph', 'x')),
    ],
    ['the event type id', rule(['event_created'], equals('event.type.id', 4))],
  ])('are empty if a rule uses %s', (_, reaction) => {
    expect(filters(reaction)).toEqual({});
    const [type] = reaction.on as string[];
    const sure: Record<string, Condition> = {
      asset_updated: equals('asset.status.id', 4),
      asset_values_created: equals('values.key', 'ph'),
      asset_specifications_updated: equals('asset.specifications.ph.value', '7'),
      event_created: equals('event.type.code', 'calibration'),
    };
    // One such rule removes the filter of its type.
    expect(filters(reaction, rule([type!], sure[type!]!))).toEqual({});
    expect(Object.keys(filters(rule([type!], sure[type!]!)))).toEqual([type]);
  });

  it('include members that the rule uses in other conditions and in action texts', () => {
    const reaction: Reaction = {
      ...rule(['asset_updated'], equals('asset.status.id', 4), equals('asset.tenant.id', null)),
      actions: [{ kind: 'post', url: 'http://x', body: { a: '{{ content.asset.description }}' }, timeoutMs: 1 }],
    };
    expect(filters(reaction)).toEqual({ asset_updated: ['description', 'status', 'tenant'] });
  });
});
