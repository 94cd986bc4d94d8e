import { describe, expect, it } from 'vitest';
import type { Condition, Reaction } from '../../src/config/reactions.ts';
import { EVENT_TYPES } from '../../src/contract/events.ts';
import { filtersFor, narrowedTypes } from '../../src/webhook/filters.ts';

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

describe('the filters of a webhook (platform 6.3)', () => {
  it('are the names that the conditions of every rule for a type ask for', () => {
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

  it('hold no type that did not register, and none that no rule is for', () => {
    const status = rule(['asset_updated'], equals('asset.status.id', 4));
    expect(filtersFor([status], ['threshold_reached', 'asset_values_created'])).toEqual({});
    expect(filters()).toEqual({});
  });

  it('are those of WEBHOOK_PROPERTIES for its types, whatever the rules need', () => {
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

  it('are none for any type beside one rule for "*"', () => {
    const status = rule(['asset_updated'], equals('asset.status.id', 4));
    expect(filters(status, rule('*', equals('event.type.code', 'calibration')))).toEqual({});
  });

  it('are never set for what tags and holds live on: those types have none', () => {
    const types = EVENT_TYPES.filter((type) => /appeared|association|threshold|value_created|document/.test(type));
    const tag: Condition = { kind: 'tag', anyOf: [{ tag: 'FT-101', asset: 881, instrumentation: 4711 }] };
    expect(types).toHaveLength(13);
    for (const type of types) {
      const conditions = [equals('asset.id', 881), equals('event.type.code', 'x'), equals('threshold.type', 'high')];
      expect(filters(rule([type], tag, ...conditions)), type).toEqual({});
    }
  });

  it.each<[string, Reaction]>([
    ['no condition at all', rule(['asset_updated'])],
    ['only which asset it is', rule(['asset_updated'], equals('asset.id', 881))],
    [
      'a serial number, which may be there to name the asset',
      rule(['asset_updated'], equals('asset.serial_number', 'A1')),
    ],
    ['a change of nothing, for null is a missing member', rule(['asset_updated'], equals('asset.status.id', null, 4))],
    [
      'a value beside the key, which another value of the same post may have',
      rule(['asset_values_created'], equals('values.key', 'flow'), {
        kind: 'range',
        path: 'values.data.value',
        above: 1,
      }),
    ],
    ['a place in the list', rule(['asset_values_created'], equals('values.0.key', 'flow'))],
    ['a key that is no text', rule(['asset_values_created'], equals('values.key', 'flow', 7))],
    ['no values, perhaps', rule(['asset_values_created'], equals('values.key', 'flow', null))],
    [
      'a member of a specification that the spec does not show',
      rule(['asset_specifications_updated'], equals('asset.specifications.ph', 'x')),
    ],
    ['another name of the event type', rule(['event_created'], equals('event.type.id', 4))],
  ])('are none where a rule asks for %s', (_, reaction) => {
    expect(filters(reaction)).toEqual({});
    const [type] = reaction.on as string[];
    const sure: Record<string, Condition> = {
      asset_updated: equals('asset.status.id', 4),
      asset_values_created: equals('values.key', 'ph'),
      asset_specifications_updated: equals('asset.specifications.ph.value', '7'),
      event_created: equals('event.type.code', 'calibration'),
    };
    // One rule in doubt opens the type for all.
    expect(filters(reaction, rule([type!], sure[type!]!))).toEqual({});
    expect(Object.keys(filters(rule([type!], sure[type!]!)))).toEqual([type]);
  });

  it('bring along what the rule names beside it: other conditions and the texts of its actions', () => {
    const reaction: Reaction = {
      ...rule(['asset_updated'], equals('asset.status.id', 4), equals('asset.tenant.id', null)),
      actions: [{ kind: 'post', url: 'http://x', body: { a: '{{ content.asset.description }}' }, timeoutMs: 1 }],
    };
    expect(filters(reaction)).toEqual({ asset_updated: ['description', 'status', 'tenant'] });
  });
});
