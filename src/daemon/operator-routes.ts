/** Everything that verbs can ask of this daemon, one set of routes a subject. */
import type { Clock } from '../base/clock.ts';
import type { RecentLines } from '../base/recent-lines.ts';
import type { Settings } from '../config/settings.ts';
import type { Tag } from '../config/tags.ts';
import { type AgentParts, agentRoutes } from '../control/agent-routes.ts';
import { assetRoutes } from '../control/asset-routes.ts';
import { bufferRoutes } from '../control/buffer-routes.ts';
import type { ControlRoutes } from '../control/control-server.ts';
import { decommissionRoutes } from '../control/decommission-routes.ts';
import { eventRoutes } from '../control/event-routes.ts';
import { logRoutes } from '../control/log-routes.ts';
import { sessionRoutes } from '../control/session-routes.ts';
import { sourceRoutes } from '../control/source-routes.ts';
import { webhookRoutes } from '../control/webhook-routes.ts';
import type { Session } from '../platform/session/session.ts';
import type { BufferFlow } from './buffer-flow.ts';
import type { EventsFlow } from './events-flow.ts';
import type { SourcesFlow } from './sources-flow.ts';

export interface OperatorParts extends AgentParts {
  session: Session;
  /** Whatever posts wait for, one is tried at once. */
  tryPosting(): void;
  /** Values of these series were deleted or moved. */
  withdrawn(series: readonly number[]): void;
  /** What it said last; where nobody keeps it the route `logs` has nothing to show. */
  recentLines: RecentLines | undefined;
  buffer: BufferFlow;
  events: EventsFlow;
  settings: Settings;
  sources: SourcesFlow;
  tags(): ReadonlyMap<string, Tag>;
  /** Stops the daemon with exit status 78. */
  leave(): void;
  clock: Clock;
}

export function operatorRoutes(parts: OperatorParts): ControlRoutes {
  const { buffer, clock, events, log, settings, sources } = parts;
  const ofBuffer = bufferRoutes({
    flow: buffer,
    tags: () => parts.tags(),
    intake: sources.intake,
    clock,
    isHeld: (asset) => events.holds.isHeld(asset),
    withdrawn: (series) => {
      events.holds.withdrawn(new Set(series.map(({ asset }) => asset)));
      parts.withdrawn(series.map(({ id }) => id));
    },
  });
  return {
    ...agentRoutes(parts),
    ...logRoutes(parts.recentLines),
    ...sessionRoutes(parts.session, () => parts.tryPosting()),
    ...eventRoutes(buffer.inbox, events),
    ...assetRoutes(buffer.objects),
    ...webhookRoutes(events),
    ...sourceRoutes(sources),
    ...ofBuffer,
    'buffer/import': async (params, call) => {
      sources.demandOpen();
      return ofBuffer['buffer/import']!(params, call);
    },
    ...decommissionRoutes({
      buffer,
      inbox: buffer.inbox,
      registration: events.registration,
      sources,
      webhook: { url: settings.webhookUrl, byHand: Boolean(settings.webhookSecret) },
      stateDir: settings.stateDir,
      tryPosting: () => parts.tryPosting(),
      leave: () => parts.leave(),
      clock,
      log,
    }),
  };
}
