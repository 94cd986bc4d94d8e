import { describe, expect, it } from 'vitest';
import { scannedLines } from '../../../src/commands/sources/report-text.ts';
import { proposeTemplates } from '../../../src/commands/sources/templates.ts';
import type { ScannedValue } from '../../../src/sources/source-kind.ts';

const found = (key: string, members: ScannedValue['members'], sample = '1'): ScannedValue => ({ key, members, sample });
const topics = (...names: string[]) =>
  names.map((topic, at) => found(`${topic.split('/').at(-1)!.toLowerCase()}${at < 2 ? '' : `_${at}`}`, { topic }));

/** Returns each template's tags and common values. */
const shared = (values: readonly ScannedValue[]) =>
  proposeTemplates(values).templates.map(({ tags, values: its }) => [
    tags,
    its.map(({ key, members }) => [key, members]),
  ]);

describe('similar scan results', () => {
  it('are combined if they differ in a single word, which becomes the tag', () => {
    const values = topics('plant/P-1/flow', 'plant/P-1/temp', 'plant/P-2/flow', 'plant/P-2/temp', 'plant/state');
    expect(shared(values)).toEqual([
      [
        ['P-1', 'P-2'],
        [
          ['flow', { topic: 'plant/{tag}/flow' }],
          ['temp', { topic: 'plant/{tag}/temp' }],
        ],
      ],
    ]);
    expect(proposeTemplates(values).rest.map(({ members }) => members.topic)).toEqual(['plant/state']);
  });

  it('are combined for every kind of source', () => {
    const node = (line: string, name: string) => found(name, { node: `ns=2;s=${line}.${name}` });
    expect(shared([node('Line1', 'flow'), node('Line2', 'flow')])).toEqual([
      [['Line1', 'Line2'], [['flow', { node: 'ns=2;s={tag}.flow' }]]],
    ]);
    const metric = (press: string) => found('pressure', { metric: `${press}/hydraulics/Pressure` });
    expect(shared([metric('press-4'), metric('press-5')])).toEqual([
      [['press-4', 'press-5'], [['pressure', { metric: '{tag}/hydraulics/Pressure' }]]],
    ]);
    const column = (tag: string, unit: string) => found(`${tag.toLowerCase()}_${unit}`, { column: `${tag} ${unit}` });
    expect(shared([column('P-1', 'bar'), column('P-1', 'rpm'), column('P-2', 'bar'), column('P-2', 'rpm')])).toEqual([
      [
        ['P-1', 'P-2'],
        [
          ['bar', { column: '{tag} bar' }],
          ['rpm', { column: '{tag} rpm' }],
        ],
      ],
    ]);
    const inOne = (tag: string) => found('v', { topic: 'all', at: `/${tag}/v`, time: '/t' });
    expect(shared([inOne('FT1'), inOne('FT2')])).toEqual([
      [['FT1', 'FT2'], [['v', { topic: 'all', at: '/{tag}/v', time: '/t' }]]],
    ]);
    const row = (tag: string): ScannedValue => ({ ...found('ph', {}), tag });
    expect(shared([row('S-4'), row('S-5')])).toEqual([[['S-4', 'S-5'], [['ph', {}]]]]);
  });

  it('are not combined if they differ only in value names, registers or list positions', () => {
    expect(shared(topics('site/flow', 'site/temp'))).toEqual([]);
    expect(shared([found('h0', { register: 'holding 0' }), found('h1', { register: 'holding 1' })])).toEqual([]);
    const phase = (at: number) => found(`a_${at}`, { topic: 'motor', at: `/phases/${at}/a` });
    expect(shared([phase(0), phase(1)])).toEqual([]);
    expect(shared(topics('site/T1', 'site/T2'))).toEqual([[['T1', 'T2'], [['value', { topic: 'site/{tag}' }]]]]);
  });

  it('contain a separate block for a tag with different values', () => {
    const values = topics('a/P-1/flow', 'a/P-2/flow', 'a/P-3/flow', 'a/P-3/temp');
    expect(scannedLines('broker', values, true)).toBe(
      [
        'like:',
        '  broker:',
        '    flow: { from: broker, topic: "a/{tag}/flow" }  # 1',
        '#   P-1: { asset: …, like: broker }',
        '#   P-2: { asset: …, like: broker }',
        '  broker_2:',
        '    flow_2: { from: broker, topic: "a/P-3/flow" }  # 1',
        '    temp_3: { from: broker, topic: "a/P-3/temp" }  # 1',
      ].join('\n'),
    );
  });
});
