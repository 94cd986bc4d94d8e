import { ClosedBuffer } from '../../agent/buffer-flow.ts';
import { systemClock } from '../../base/clock.ts';
import { messageOf, TagferryError } from '../../base/errors.ts';
import { createLogger } from '../../base/logger.ts';
import { configurationDirectory, readSettingsLeniently, readTagsLeniently } from '../../config/configuration.ts';
import { namesInstrumentation } from '../../config/instrumentations.ts';
import type { Settings } from '../../config/settings.ts';
import type { Tag } from '../../config/tags.ts';
import { bufferRoutes } from '../../control/buffer-routes.ts';
import type { ControlRoutes } from '../../control/control-server.ts';
import { createMetrics } from '../../ops/metrics.ts';
import { Intake } from '../../sources/intake/intake.ts';
import { ValueTimes } from '../../sources/intake/times.ts';
import { SOURCE_KINDS } from '../../sources/kinds.ts';
import { neverRan } from '../../store/store-client.ts';
import { giveToOwner } from '../service/service-folder.ts';
import { type AgentAddress, agentAddress, askAgent, NoAgentError, streamFromAgent } from './control-client.ts';

/** Access to the buffer through the running agent, or directly in the state folder of a stopped agent. */
export interface BufferConnection {
  /** Whether the running agent responds. An agent continues unfinished operations after the command exits. */
  readonly isAgent: boolean;
  ask<Result>(operation: string, params?: Record<string, unknown>): Promise<Result>;
  /** Streams a response; `write` applies backpressure. */
  stream(operation: string, params: Record<string, unknown>, write: (text: string) => Promise<void>): Promise<void>;
  close(): Promise<void>;
}

/** Throws `store.locked` if an agent that does not respond uses the folder, and `buffer.absent` if no buffer exists. */
export async function openBufferConnection(
  config: string | undefined,
  environment: NodeJS.ProcessEnv,
): Promise<BufferConnection> {
  const place = agentAddress(config, environment);
  try {
    // Any response to this inexpensive request proves that an agent is running.
    await askAgent(place, 'buffer/ls', { tag: undefined, asset: 1, key: '-' });
    return agentConnection(place);
  } catch (error) {
    if (!(error instanceof NoAgentError)) throw error;
  }
  return openFolder(config, environment);
}

function agentConnection(place: AgentAddress): BufferConnection {
  return {
    isAgent: true,
    ask: (operation, params) => askAgent(place, operation, params),
    async stream(operation, params, write) {
      const answer = await streamFromAgent(place, operation, params);
      try {
        for await (const text of answer.setEncoding('utf8') as AsyncIterable<string>) await write(text);
      } catch (error) {
        if (error instanceof TagferryError) throw error;
        throw new TagferryError('the agent closed its response early: the output is incomplete', {
          code: 'daemon.broke_off',
          cause: error,
        });
      }
    },
    close: async () => {},
  };
}

async function openFolder(config: string | undefined, environment: NodeJS.ProcessEnv): Promise<BufferConnection> {
  const directory = configurationDirectory(config, environment);
  const settings = readSettingsLeniently({ directory, environment }).settings as Settings;
  const { stateDir } = settings;
  if (neverRan(stateDir)) {
    throw new TagferryError(`no buffer in ${stateDir}, and no agent responds`, {
      code: 'buffer.absent',
      hint: 'Specify the configuration with --config, or set STATE_DIR.',
    });
  }
  // The command reports its own result, so buffer warnings are not logged.
  const log = createLogger({ level: 'error', format: 'auto', fd: 2 });
  const metrics = createMetrics(() => {
    throw new Error('metrics of a command are never scraped');
  });
  const closed = new ClosedBuffer({
    // Commands never drop values to enforce a limit; only the agent does.
    settings: { ...FALLBACK, ...settings, bufferFull: 'refuse-new', bufferMaxAgeMs: 0 },
    holder: 'verb',
    clock: systemClock,
    log,
    metrics,
    onDeath: (error) => log.fatal({ event: 'store.dead', error: messageOf(error) }, 'the store thread exited'),
  });
  const byInstrumentation = namesInstrumentation(settings.valuesPath ?? '');
  const tags = tagsOf(directory);
  const flow = await closed.open().catch(async (error: unknown) => {
    await closed.stop().catch(() => {});
    throw error;
  });
  const intake = new Intake({
    catalogue: flow.catalogue,
    tags,
    byInstrumentation,
    committer: flow.committer,
    stamps: flow.stamps,
    times: new ValueTimes(settings.earliestTimeMs),
    clock: systemClock,
    log,
  });
  const routes = bufferRoutes({ flow, tags: () => tags, intake, clock: systemClock });
  // An interrupt stops the operation between two commits, after which the files are closed.
  const stop = new AbortController();
  const onSignal = () => stop.abort(new TagferryError('interrupted', { code: 'interrupted' }));
  process.once('SIGINT', onSignal);
  return localConnection(routes, stop.signal, async () => {
    process.off('SIGINT', onSignal);
    await flow.stop();
    giveToOwner(stateDir);
  });
}

function localConnection(routes: ControlRoutes, signal: AbortSignal, close: () => Promise<void>): BufferConnection {
  const call = (operation: string, params: Record<string, unknown>, write: (text: string) => Promise<void>) => {
    const route = routes[operation];
    if (!route) throw new Error(`unknown route ${operation}`);
    return route(params, { signal, write });
  };
  return {
    isAgent: false,
    ask: async <Result>(operation: string, params = {}) => (await call(operation, params, async () => {})) as Result,
    stream: async (operation, params, write) => {
      await call(operation, params, write);
    },
    close,
  };
}

function tagsOf(directory: string): ReadonlyMap<string, Tag> {
  return readTagsLeniently({ directory, environment: process.env, kinds: SOURCE_KINDS }).tags;
}

/** Returns the settings to use if agent.env cannot be parsed. */
const FALLBACK = {
  bufferMaxBytes: 2 * 1024 ** 3,
  bufferMaxAgeMs: 0,
  bufferMinFree: { share: 0.05 },
  bufferFull: 'drop-oldest',
  postIntervalMs: 10_000,
  commitIntervalMs: 1_000,
  commitValues: 1_000,
} as const;
