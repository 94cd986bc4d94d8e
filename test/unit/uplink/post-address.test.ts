import { describe, expect, it } from 'vitest';
import { fillValuesPath } from '../../../src/uplink/post-address.ts';

describe('VALUES_PATH', () => {
  it('contains the asset and the instrumentation after substitution', () => {
    expect(fillValuesPath('/v1/assets/{asset_id}/values', 881, undefined)).toBe('/v1/assets/881/values');
    expect(fillValuesPath('/x/{instrumentation_id}/{asset_id}', 881, 4711)).toBe('/x/4711/881');
    expect(fillValuesPath('/{asset_id}/{instrumentation_id}/{asset_id}', 881, undefined)).toBe('/881//881');
  });
});
