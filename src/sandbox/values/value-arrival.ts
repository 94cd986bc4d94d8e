import type { EventType } from '../../contract/events.ts';
import type { Announcer } from '../events/announcer.ts';
import { valueHappenings } from '../events/value-events.ts';
import type { PermissionRegistry } from '../permissions/permission-registry.ts';
import type { SiteModel } from '../site/site-model.ts';
import type { ThresholdWatch } from './threshold-watch.ts';
import type { ValueLedger } from './value-ledger.ts';
import type { PostedSeries } from './values-body.ts';

const VALUE_EVENTS = ['asset_value_created', 'asset_values_created', 'instrumentation_values_created'] as const;

export interface ArrivalParts {
  site: SiteModel;
  registry: PermissionRegistry;
  ledger: ValueLedger;
  thresholds: ThresholdWatch;
  announcer: Announcer;
  report(sentence: string): void;
}

/** What values do once they are taken: they are stored, told (platform 6.3), and held against the thresholds. */
export class ValueArrival {
  readonly #parts: ArrivalParts;

  constructor(parts: ArrivalParts) {
    this.#parts = parts;
  }

  take(asset: number, posted: readonly PostedSeries[]): void {
    const { site, registry, ledger, thresholds, announcer, report } = this.#parts;
    ledger.record(asset, posted);
    const readers = (type: 'Asset' | 'Instrumentation', id: number) => registry.usersWho('can_read', { type, id });
    const isWanted = (type: EventType) => announcer.hasListener(type);
    if (VALUE_EVENTS.some(isWanted)) {
      for (const happening of valueHappenings(site, asset, posted, readers, isWanted)) announcer.announce(happening);
    }
    for (const { content } of thresholds.reached(asset, posted)) {
      const { threshold, data, instrumentation } = content;
      const tag = instrumentation && site.get('instrumentations', instrumentation.id)?.tag;
      report(`${data.key} of ${tag ?? `asset ${asset}`} reaches ${threshold.name}: ${data.value}`);
      announcer.announce({
        type: 'threshold_reached',
        audience: (user) => registry.may(user, 'can_read', { type: 'Asset', id: asset }),
        content: () => ({ ...content }),
      });
    }
  }
}
