import { describe, expect, it } from 'vitest';
import { documentedFiles } from '../../fixtures/documented-files.ts';
import { check } from './folder.ts';

describe('complete YAML file in the documentation', () => {
  it.each(documentedFiles())('is accepted by check: $place', ({ tags, reactions }) => {
    expect(check({ 'tags.yaml': tags, 'reactions.yaml': reactions }).errors).toEqual([]);
  });
});
