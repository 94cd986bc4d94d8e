import type { Announcer } from '../events/announcer.ts';
import { valueHappenings } from '../events/value-events.ts';
import type { PermissionRegistry } from '../permissions/permission-registry.ts';
import type { SiteModel } from '../site/site-model.ts';
import type { ThresholdWatch } from './threshold-watch.ts';
import type { ValueLedger } from './value-ledger.ts';
import type { PostedSeries } from './values-body.ts';

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
    const mayRead = (user: number, type: 'Asset' | 'Instrumentation', id: number) =>
      registry.may(user, 'can_read', { type, id });
    // Built only where somebody listens: a post of 5,000 values would make 5,000 happenings.
    if (announcer.hasListener(/_values?_created$/)) {
      for (const happening of valueHappenings(site, asset, posted, mayRead)) announcer.announce(happening);
    }
    for (const { content } of thresholds.reached(asset, posted)) {
      const { threshold, data, instrumentation } = content;
      const tag = instrumentation && site.get('instrumentations', instrumentation.id)?.tag;
      report(`${data.key} of ${tag ?? `asset ${asset}`} reaches ${threshold.name}: ${data.value}`);
      announcer.announce({
        type: 'threshold_reached',
        audience: (user) => mayRead(user, 'Asset', asset),
        content: () => ({ ...content }),
      });
    }
  }
}
