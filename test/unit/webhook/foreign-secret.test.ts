import { expect, it } from 'vitest';
import { ForeignSecret } from '../../../src/webhook/foreign-secret.ts';
import { identityOf } from '../../../src/webhook/identity.ts';
import { ManualClock } from '../doubles/manual-clock.ts';

it('a changed webhook secret is reported if the deliveries list contains a rejected event, but not after forged requests', () => {
  const reports: string[] = [];
  const secret = new ForeignSecret({
    clock: new ManualClock(),
    found: () => reports.push('found'),
    over: () => reports.push('over'),
  });
  const [rejected, other] = ['{"event_type":"asset_created"}', '{"event_type":"asset_updated"}'].map((text) =>
    Buffer.from(text),
  );
  expect(secret.rejected(rejected!)).toBe(true);
  secret.listed([identityOf(other!)]);
  expect(reports).toEqual([]);
  secret.listed([identityOf(other!), identityOf(rejected!)]);
  expect(reports).toEqual(['found']);
  secret.accepted();
  expect(reports).toEqual(['found', 'over']);
});
