import { afterEach, describe, expect, it } from 'vitest';
import { assume } from '../../src/sandbox/program/assumptions.ts';
import { Sandbox, type SandboxOptions } from '../../src/sandbox/sandbox.ts';
import { Visitor } from './visitor.ts';

let sandbox: Sandbox | undefined;
afterEach(() => sandbox?.stop());

async function assuming(...flags: string[]) {
  const options: SandboxOptions = {};
  assume(options, flags);
  sandbox = new Sandbox(options);
  await sandbox.start();
  return { sandbox, visitor: await Visitor.signedIn(sandbox), anna: Visitor.asPerson(sandbox) };
}

describe('what the spec does not show can be assumed otherwise', () => {
  it.each([0, 3, 8, 9, 12, 16, 1000])('the offset of can_permit in v1 ids: %i', async (offset) => {
    const { anna, sandbox } = await assuming(`can-permit-offset=${offset}`);
    const { permissions } = (await anna.get('/v1/permissions?permitable_id=881&permitable_type=Asset')).body;
    const idOf = (type: string) =>
      Number(permissions.find((one: { permission_type: string }) => one.permission_type === type).id);
    expect(idOf('can_permit') - idOf('can_read')).toBe(offset - 1);
    const one = await anna.get(`/v1/permissions/${idOf('can_permit')}`);
    expect(one.body.permission_type).toBe('can_permit');
    const ids = sandbox.site
      .all('permissions')
      .flatMap(({ id, types }) =>
        types.map((type) => id + { can_read: 1, can_update: 2, can_delete: 4, can_permit: offset }[type]),
      );
    expect(new Set(ids).size).toBe(ids.length);
  });

  it('the model graph of inheritance', async () => {
    const { sandbox } = await assuming('inheritance=Node>Asset');
    expect(sandbox.permissions.may(5, 'can_read', { type: 'Asset', id: 911 })).toBe(false);
    sandbox.takePermission({ type: 'Asset', id: 881 }, { direct: true });
    expect(sandbox.permissions.may(5, 'can_read', { type: 'Asset', id: 881 })).toBe(false);
    sandbox.grantPermission({ type: 'Node', id: 20 });
    expect(sandbox.permissions.may(5, 'can_read', { type: 'Asset', id: 881 })).toBe(true);
  });

  it('when an edge device goes offline', async () => {
    const { sandbox } = await assuming('edge-device-offline=1h');
    sandbox.changes.edgeDevices.seen(30);
    sandbox.clock.advance(59 * 60_000);
    expect(sandbox.site.get('edge_devices', 30)!.status).toBe(85);
    sandbox.clock.advance(61_000);
    expect(sandbox.site.get('edge_devices', 30)!.status).toBe(86);
  });

  it('what is answered after a sunset', async () => {
    const { sandbox } = await assuming('after-sunset=404');
    sandbox.clock.advance(Date.UTC(2027, 4, 3) - sandbox.clock.wallMs());
    expect((await Visitor.asPerson(sandbox).get('/v1/permissions')).status).toBe(404);
  });

  it('a header that holds the client id', async () => {
    const { visitor } = await assuming('api-key-header=API-Key');
    const path = '/v1/client_applications/current';
    expect((await visitor.get(path)).status).toBe(401);
    expect((await visitor.call('GET', path, undefined, { 'api-key': 'wrong' })).status).toBe(401);
    expect((await visitor.call('GET', path, undefined, { 'api-key': 'sandbox-client' })).status).toBe(200);
  });

  it('the member of the deliveries list, the receiver’s time, and every value beyond a threshold', async () => {
    const options: SandboxOptions = {};
    assume(options, ['deliveries-under=webhook_events', 'webhook-timeout=2s', 'threshold=every']);
    expect(options).toEqual({ deliveriesUnder: 'webhook_events', webhookTimeoutMs: 2000, everyThresholdValue: true });
  });

  it.each([
    ['can-permit-ofset=5', 'can-permit-offset'],
    ['can-permit-offset=4', 'can_delete'],
    ['can-permit-offset=-1', 'between 0 and'],
    ['inheritance=Tenant>Asset', 'Node>Asset'],
    ['webhook-timeout=soon', '10s'],
    ['threshold', 'threshold=crossing'],
  ])('%s is refused with what to write', (flag, hint) => {
    let said = '';
    try {
      assume({}, [flag]);
    } catch (error) {
      said = `${(error as Error).message} ${(error as { hint?: string }).hint ?? ''}`;
    }
    expect(said).toContain(hint);
  });
});
