import { describe, expect, it } from 'vitest';
import { SandboxClock } from '../../../src/sandbox/sandbox-clock.ts';
import { WebhookRegistry } from '../../../src/sandbox/webhooks/webhook-registry.ts';
import { ManualClock } from '../doubles/manual-clock.ts';

const registryOf = (maxSettled: number) => {
  const clock = new SandboxClock(new ManualClock(0, 1));
  return { clock, registry: new WebhookRegistry(clock, maxSettled) };
};
const add = (registry: WebhookRegistry) => registry.addDelivery(1, 'asset_appeared', 0, '{}');
const idsOf = (registry: WebhookRegistry) => registry.deliveries().map(({ id }) => id);

describe('stored deliveries', () => {
  it('are evicted if delivered or cancelled, or if only failed deliveries remain', () => {
    const { registry } = registryOf(3);
    for (const status of ['failed', 'delivered', 'failed', 'cancelled', 'failed'] as const)
      registry.settle(add(registry), status);
    expect(idsOf(registry)).toEqual([1, 3, 5]);
    registry.settle(add(registry), 'failed');
    expect(idsOf(registry)).toEqual([3, 5, 6]);
    registry.settle(add(registry), 'delivered');
    expect(idsOf(registry)).toEqual([3, 5, 6]);
  });

  it('are not evicted while pending or restarted', () => {
    const { registry } = registryOf(1);
    const first = add(registry);
    registry.settle(first, 'failed');
    registry.reopen(first);
    for (let i = 0; i < 5; i++) add(registry);
    registry.settle(add(registry), 'delivered');
    registry.settle(add(registry), 'delivered');
    expect(idsOf(registry)).toEqual([1, 2, 3, 4, 5, 6, 8]);
  });

  it('are removed after six months, or with their webhook', () => {
    const { registry, clock } = registryOf(10);
    registry.settle(add(registry), 'failed');
    clock.advance(200 * 24 * 3600 * 1000);
    expect(idsOf(registry)).toEqual([]);
    const late = add(registry);
    registry.remove(1);
    registry.settle(late, 'cancelled');
    expect(idsOf(registry)).toEqual([]);
  });
});
