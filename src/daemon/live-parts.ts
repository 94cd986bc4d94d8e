/** What the page's topics read of the agent's parts. */
import type { Tags } from '../config/tags.ts';
import type { EventsFeedParts } from '../ops/live/events-feed.ts';
import type { HeldFeedParts } from '../ops/live/held-feed.ts';
import { QuarantinedSeries } from '../ops/live/quarantined-series.ts';
import type { Metrics } from '../ops/metrics.ts';
import { SeriesNames } from '../sources/series-names.ts';
import { fillValuesPath } from '../uplink/post-address.ts';
import type { Uplink } from '../uplink/uplink.ts';
import type { BufferFlow } from './buffer-flow.ts';
import type { EventsFlow } from './events-flow.ts';
import type { LiveFlowOptions } from './live-flow.ts';
import type { SourcesFlow } from './sources-flow.ts';

export interface LivePartsOptions {
  buffer: BufferFlow;
  events: EventsFlow;
  metrics: Metrics;
  sources: SourcesFlow;
  uplink: Uplink;
  tags(): Tags;
  valuesPath(): string;
}

export function liveParts(
  options: LivePartsOptions,
): Pick<LiveFlowOptions, 'tags' | 'events' | 'deliveries' | 'assets' | 'held'> {
  const { buffer, events } = options;
  return {
    tags: tagParts(options),
    events: eventParts(options),
    deliveries: () => events.deliveries.recent(),
    assets: buffer.objects,
    held: heldParts(options),
  };
}

function tagParts({ buffer, events, sources, uplink, tags, valuesPath }: LivePartsOptions): LiveFlowOptions['tags'] {
  const quarantined = new QuarantinedSeries(
    () => buffer.facts.quarantined,
    async () => (await buffer.operator.countQuarantine()).series.map(({ series }) => series),
  );
  return {
    tags,
    seriesOf: (tag, value) => sources.intake.seriesIfOpen(tag, value),
    readings: sources.readings,
    isAssetHeld: (asset) => events.holds.isHeld(asset),
    heldSeries: () => events.holds.heldSeries(),
    refusedSeries: () => uplink.snapshot().waitingIds,
    quarantinedSeries: () => quarantined.known,
    pathOf: ({ asset, instrumentation }) => fillValuesPath(valuesPath(), asset, instrumentation),
  };
}

function eventParts({ buffer, events, metrics }: LivePartsOptions): EventsFeedParts {
  return {
    inbox: buffer.inbox,
    outputs: events.outputs,
    rejected: () =>
      Object.fromEntries(metrics.eventsRejected.values.map(({ labels, value }) => [labels.reason, value])),
    received: () => metrics.eventsReceived.values.reduce((sum, { value }) => sum + value, 0),
  };
}

function heldParts({ buffer, tags }: LivePartsOptions): HeldFeedParts {
  let names: { of: Tags; by: SeriesNames } | undefined;
  return {
    quarantined: () => buffer.facts.quarantined,
    show: (page) => buffer.operator.showQuarantine(page),
    nameOf(id) {
      const series = buffer.catalogue.get(id);
      if (!series) return `series ${id}`;
      if (names?.of !== tags()) names = { of: tags(), by: new SeriesNames(tags().tags) };
      return `${names.by.tagOf(series) ?? `asset ${series.asset}`} ${series.key}`;
    },
  };
}
