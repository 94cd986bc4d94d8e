import { systemClock } from '../base/clock.ts';
import { messageOf, TagferryError } from '../base/errors.ts';
import { createLogger } from '../base/logger.ts';
import { configurationDirectory, readSettingsLeniently, readTagsLeniently } from '../config/configuration.ts';
import { namesInstrumentation } from '../config/instrumentations.ts';
import type { Settings } from '../config/settings.ts';
import type { Tag } from '../config/tags.ts';
import { bufferRoutes } from '../control/buffer-routes.ts';
import type { ControlRoutes } from '../control/control-server.ts';
import { ClosedBuffer } from '../daemon/buffer-flow.ts';
import { createMetrics } from '../ops/metrics.ts';
import { Intake } from '../sources/intake.ts';
import { SOURCE_KINDS } from '../sources/kinds.ts';
import { neverRan } from '../store/store-client.ts';
import { askDaemon, type DaemonPlace, daemonPlace, NoDaemonError, streamFromDaemon } from './control-client.ts';
import { giveToOwner } from './state-owner.ts';

/** Asks the buffer, whoever has it: the running daemon, or this process, which then opens the state folder itself. */
export interface BufferConnection {
  /** A running daemon answers: what it could not end it goes on with. */
  readonly isDaemon: boolean;
  ask<Result>(operation: string, params?: Record<string, unknown>): Promise<Result>;
  /** For an answer in pieces: each is given to `write`, which may let it wait. */
  stream(operation: string, params: Record<string, unknown>, write: (text: string) => Promise<void>): Promise<void>;
  close(): Promise<void>;
}

/** Throws `store.locked` where the folder is in use by a daemon that does not answer, `buffer.absent` where there is none. */
export async function openBufferConnection(
  config: string | undefined,
  environment: NodeJS.ProcessEnv,
): Promise<BufferConnection> {
  const place = daemonPlace(config, environment);
  try {
    // Cheap, and whatever it answers, somebody is there.
    await askDaemon(place, 'buffer/ls', { tag: undefined, asset: 1, key: '-' });
    return daemonConnection(place);
  } catch (error) {
    if (!(error instanceof NoDaemonError)) throw error;
  }
  return openFolder(config, environment);
}

function daemonConnection(place: DaemonPlace): BufferConnection {
  return {
    isDaemon: true,
    ask: (operation, params) => askDaemon(place, operation, params),
    async stream(operation, params, write) {
      const answer = await streamFromDaemon(place, operation, params);
      try {
        for await (const text of answer.setEncoding('utf8') as AsyncIterable<string>) await write(text);
      } catch (error) {
        if (error instanceof TagferryError) throw error;
        throw new TagferryError('the agent ended its response early: the output is incomplete', {
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
    throw new TagferryError(`there is no buffer in ${stateDir}, and no daemon answers`, {
      code: 'buffer.absent',
      hint: 'Name the configuration with --config, or set STATE_DIR.',
    });
  }
  // The verb itself says what it did; what a daemon warns of while it does the same is not for who asked.
  const log = createLogger({ level: 'error', format: 'auto', fd: 2 });
  const metrics = createMetrics(() => {
    throw new Error('nobody scrapes a verb');
  });
  const closed = new ClosedBuffer({
    // A verb looks: what a bound drops, the daemon drops.
    settings: { ...FALLBACK, ...settings, bufferFull: 'refuse-new', bufferMaxAgeMs: 0 },
    holder: 'verb',
    clock: systemClock,
    log,
    metrics,
    onDeath: (error) => log.fatal({ event: 'store.dead', error: messageOf(error) }, 'the store thread ended'),
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
    sink: flow.committer,
    stamps: flow.stamps,
    clock: systemClock,
  });
  const routes = bufferRoutes({ flow, tags: () => tags, intake, clock: systemClock });
  // Steps end between two commits; what is done stays done, and the files are closed in order.
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
    if (!route) throw new Error(`no route is called ${operation}`);
    return route(params, { signal, write });
  };
  return {
    isDaemon: false,
    ask: async <Result>(operation: string, params = {}) => (await call(operation, params, async () => {})) as Result,
    stream: async (operation, params, write) => {
      await call(operation, params, write);
    },
    close,
  };
}

/** The tags alone: what else is wrong with the configuration does not matter here. */
function tagsOf(directory: string): ReadonlyMap<string, Tag> {
  return readTagsLeniently({ directory, environment: process.env, kinds: SOURCE_KINDS }).tags;
}

/** Where agent.env is too broken to say. */
const FALLBACK = {
  bufferMaxBytes: 2 * 1024 ** 3,
  bufferMaxAgeMs: 0,
  bufferMinFree: { share: 0.05 },
  bufferFull: 'drop-oldest',
  postIntervalMs: 10_000,
  commitIntervalMs: 1_000,
  commitValues: 1_000,
} as const;
