import { describe, expect, it } from 'vitest';
import { commandEnvironment } from '../../src/reactions/command-environment.ts';
import { readFacts } from '../../src/reactions/event-facts.ts';
import { tagNames } from '../../src/reactions/tag-names.ts';

const TAGS = [
  { name: 'FT-101', asset: 881, instrumentation: 4711 },
  { name: 'TT-101', asset: 881, instrumentation: 4712 },
  { name: 'GW-01', asset: 900 },
];

const tagOf = (content: Record<string, unknown>) => {
  const envelope = { event_type: 'threshold_reached', content };
  const event = { id: 1, eventType: 'threshold_reached', occurredAtMs: 0, payload: '', envelope, progress: [] };
  const facts = readFacts(event, tagNames(TAGS));
  return commandEnvironment({}, 'r', facts, 'm').TAGFERRY_TAG;
};

describe('TAGFERRY_TAG', () => {
  it.each([
    ['the tag of the instrumentation', { asset: { id: 881 }, instrumentation: { id: 4712, href: '' } }, 'TT-101'],
    ['that of the asset where one tag has it', { asset: { id: 900 } }, 'GW-01'],
    ['nothing where two tags have the asset', { asset: { id: 881 } }, undefined],
    [
      'what the event itself says of an instrumentation that tags.yaml does not name',
      { instrumentation: { id: 5, tag: 'XT-5' } },
      'XT-5',
    ],
    ['nothing of a strange asset', { asset: { id: 1 } }, undefined],
  ])('is %s', (_, content, tag) => {
    expect(tagOf(content)).toBe(tag);
  });
});
