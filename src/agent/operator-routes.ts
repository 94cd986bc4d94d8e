/** Control routes of the agent, one set per subject. */
import type { Clock } from '../base/clock.ts';
import type { RecentLines } from '../base/recent-lines.ts';
import type { Reaction } from '../config/reactions.ts';
import type { Settings } from '../config/settings.ts';
import type { Tag } from '../config/tags.ts';
import { type AgentParts, agentRoutes, logRoutes, sessionRoutes } from '../control/agent-routes.ts';
import { bufferRoutes } from '../control/buffer-routes.ts';
import type { ControlRoutes } from '../control/control-server.ts';
import { decommissionRoutes } from '../control/decommission-routes.ts';
import { assetRoutes, eventRoutes, webhookRoutes } from '../control/event-routes.ts';
import { reactionRoutes } from '../control/reaction-routes.ts';
import { sourceRoutes } from '../control/source-routes.ts';
import { writeRoutes } from '../control/write-routes.ts';
import type { Session } from '../platform/session/session.ts';
import type { Writer } from '../sources/writes/writer.ts';
import type { BufferFlow } from './buffer-flow.ts';
import type { EventsFlow } from './events-flow.ts';
import type { SourcesFlow } from './sources-flow.ts';

export interface OperatorParts extends AgentParts {
  session: Session;
  /** Retries a post immediately, regardless of any delay. */
  tryPosting(): void;
  /** Latest log lines; if undefined, the route `logs` returns none. */
  recentLines: RecentLines | undefined;
  buffer: BufferFlow;
  events: EventsFlow;
  settings: Settings;
  sources: SourcesFlow;
  writer: Writer;
  tags(): ReadonlyMap<string, Tag>;
  reactions(): readonly Reaction[];
  /** Stops the agent with exit code 78. */
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
    // A hold whose values were withdrawn ends at its next probe.
    withdrawn: () => events.holds.tryNow(),
  });
  return {
    ...agentRoutes(parts),
    ...logRoutes(parts.recentLines),
    ...sessionRoutes(parts.session, () => parts.tryPosting()),
    ...eventRoutes(buffer.inbox, events),
    ...assetRoutes(buffer.access),
    ...webhookRoutes(events),
    ...sourceRoutes(sources.tagSources),
    ...reactionRoutes(() => parts.reactions(), events.valueRules),
    ...writeRoutes({ writer: parts.writer, inbox: buffer.inbox, clock }),
    ...ofBuffer,
    'buffer/import': async (params, call) => {
      sources.requireOpen();
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
