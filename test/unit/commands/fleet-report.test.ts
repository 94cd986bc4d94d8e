import { describe, expect, it } from 'vitest';
import { lineOf } from '../../../src/commands/fleet-report/lines.ts';
import { CALM_STATUS } from '../doubles/calm-status.ts';

const failuresOf = (more: object) => lineOf({ gateway: 'gw-1', status: { ...CALM_STATUS, ...more } }).failures;
const withoutToken = (code: string) => ({ session: { usable: false, last_error: { code, message: 'x' } } });

describe('fleet report line', () => {
  it('distinguishes an unavailable platform from a rejected sign-in', () => {
    for (const code of ['platform.connection_refused', 'platform.timeout', 'platform.sign_in_unavailable']) {
      expect(failuresOf(withoutToken(code))).toEqual([`platform unavailable: ${code}`]);
    }
    expect(failuresOf(withoutToken('platform.sign_in_refused'))).toEqual(['signed out: platform.sign_in_refused']);
    expect(failuresOf({ session: { usable: false } })).toEqual(['signed out: no error reported']);
  });

  it('counts only holds with waiting values', () => {
    const holds = [true, false, true].map((values_wait) => ({ kind: 'asset', id: 1, values_wait }));
    expect(failuresOf({ holds })).toEqual(['2 held']);
    expect(failuresOf({ holds: holds.filter((hold) => !hold.values_wait) })).toEqual([]);
  });
});
