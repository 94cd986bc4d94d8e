import { afterEach, beforeEach, describe, expect, it } from 'vitest';
import { Sandbox } from '../../../src/sandbox/sandbox.ts';
import { Visitor } from './visitor.ts';

let sandbox: Sandbox;
let visitor: Visitor;

beforeEach(async () => {
  sandbox = new Sandbox();
  await sandbox.start();
  visitor = await Visitor.signedIn(sandbox);
});
afterEach(() => sandbox.stop());

describe('request log', () => {
  it('contains the reason why a request was rejected', async () => {
    await visitor.post(1, 'flow', [{ value: 1 }]);
    await visitor.post(881, 'a b', [{ value: 1 }]);
    await visitor.form('/oauth/token', { grant_type: 'password', username: 'x', password: 'y' });
    const refused = sandbox.requests.list().map((entry) => entry.refused);
    expect(refused.slice(-3)).toEqual([
      'Asset 1 was not found',
      'values[0].key must have 1 to 128 letters, digits, dots, hyphens or underscores',
      'incorrect user name or password',
    ]);
  });

  it('contains changes made through the admin API', async () => {
    const told: string[] = [];
    sandbox.requests.onHappened(({ text }) => told.push(text));
    sandbox.revokePermission({ type: 'Asset', id: 881 }, { types: ['can_read'] });
    sandbox.changes.destroy('assets', 901);
    await visitor.call('POST', '/sandbox/clock', { advanceMs: 60_000 });
    await sandbox.goOffline({ status: 503 });
    await sandbox.goOnline();
    expect(told).toEqual([
      'Gateway lost can_read on Asset 881',
      'asset 901 deleted',
      'clock advanced by 60 s',
      'platform unavailable',
      'platform available',
    ]);
  });
});
