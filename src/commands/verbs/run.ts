import type { Command } from 'commander';
import { giveBackMemory } from '../../agent/memory.ts';
import { storeThreadOptions } from '../../agent/pace.ts';
import { agentStoreThread } from '../../agent/store-worker.ts';
import { systemClock } from '../../base/clock.ts';
import { exitStatusOf } from '../../base/command-end.ts';
import { ConfigurationError, codeOf, messageOf, TagferryError } from '../../base/errors.ts';
import { onHangup } from '../../base/hangup.ts';
import { version } from '../../base/installation.ts';
import type { StoreThread } from '../../store/store-client.ts';

/** EX_CONFIG in sysexits.h, after which systemd does not restart the unit. */
const DECOMMISSIONED = 78;

/** Adds `tagferry run`. */
export function define(program: Command): void {
  program
    .command('run')
    .description('run the agent in the foreground, as systemd does')
    .option('--strict', 'exit with status 78 if the files are rejected, instead of using the previous valid ones')
    .action(async (flags: { strict?: boolean }) => {
      // The store thread loads its modules while this thread loads the others.
      const storeThread = agentStoreThread();
      storeThread.launch();
      const { configurationDirectory } = await import('../../config/configuration.ts');
      const directory = configurationDirectory(program.opts<{ config?: string }>().config, process.env);
      try {
        await runAgent(directory, flags.strict === true, storeThread);
      } catch (error) {
        await endFailedStart(error, directory);
      }
    });
}

/**
 * If standard error is the journal, logs the failure, because the journal does not treat text without a priority as an
 * error. Otherwise throws it.
 */
async function endFailedStart(error: unknown, directory: string): Promise<void> {
  const { createLogger, isJournal } = await import('../../base/logger.ts');
  if (!isJournal(2, process.env)) throw error;
  const { readSettingsLeniently } = await import('../../config/configuration.ts');
  const { logFormat } = readSettingsLeniently({ directory, environment: process.env }).settings;
  const log = createLogger({ level: 'info', format: logFormat ?? 'auto', fd: 2 });
  log.fatal(startFailure(error), 'failed to start');
  process.exit(exitStatusOf(error));
}

function startFailure(error: unknown) {
  const problems = error instanceof ConfigurationError ? { problems: error.problems } : {};
  const hint = error instanceof TagferryError ? error.hint : undefined;
  return { event: 'agent.start_failed', code: codeOf(error), error: messageOf(error), ...problems, hint };
}

async function runAgent(directory: string, strict: boolean, storeThread: StoreThread): Promise<void> {
  const { ACTION_KINDS } = await import('../../reactions/actions.ts');
  const { SOURCE_KINDS } = await import('../../sources/kinds.ts');
  const { keepLastGood, startConfiguration } = await import('../../config/last-good.ts');
  const files = { directory, environment: process.env, kinds: SOURCE_KINDS, actions: ACTION_KINDS };
  const { configuration, refusal } = startConfiguration(files, strict);
  const { settings, warnings } = configuration;
  const { requireInService } = await import('../../store/decommission-mark.ts');
  requireInService(settings.stateDir);
  storeThread.open(storeThreadOptions(settings));
  const { NameLookup } = await import('../../base/name-lookup.ts');
  new NameLookup().install();
  const { createLogger, isJournal } = await import('../../base/logger.ts');
  const { logConsole } = await import('../../base/console-lines.ts');
  const { RecentLines } = await import('../../base/recent-lines.ts');
  const { Agent } = await import('../../agent/agent.ts');
  const { readConfigurationAside, readIdentityAside } = await import('../../agent/configuration-reading.ts');
  const recentLines = new RecentLines();
  const log = createLogger({ level: settings.logLevel, format: settings.logFormat, recent: recentLines });
  logConsole(log);
  for (const warning of warnings) log.warn({ event: 'config.warning', warning }, 'configuration warning');
  log.info(
    { event: 'agent.starting', version: version(), node: process.versions.node, config: directory },
    'tagferry starting',
  );
  const { promise: over, resolve: end } = Promise.withResolvers<number>();
  const agent = new Agent({
    version: version(),
    configuration,
    ...(refusal ? { refusal } : {}),
    readConfiguration: () => readConfigurationAside(files, systemClock),
    readIdentity: () => readIdentityAside(files, systemClock),
    keepConfiguration: async ({ texts, settings: { stateDir } }) => {
      if (texts) await keepLastGood(texts, stateDir, process.env);
    },
    directory,
    clock: systemClock,
    log,
    recentLines,
    environment: process.env,
    storeThread,
    onFatal(error) {
      log.fatal({ event: 'store.dead', error: messageOf(error) }, 'store thread exited, restarting the service');
      end(1);
    },
    onDecommissioned: () => stop(DECOMMISSIONED),
  });
  let stopping = false;
  const stop = (status: number) => {
    // A second signal terminates the process immediately.
    if (stopping) process.exit(1);
    stopping = true;
    void agent.stop().then(() => end(status));
  };
  // By default, SIGUSR1 opens the Node debugger, which would expose the session to all users of this machine.
  process.on('SIGUSR1', () => {});
  process.on('SIGTERM', () => stop(0));
  process.on('SIGINT', () => stop(0));
  // The agent logs the errors in a rejected configuration and keeps the previous one.
  onHangup(() => {
    void agent
      .reload()
      .catch(() => {})
      .then(() => giveBackMemory(systemClock));
  });
  try {
    await agent.start();
    giveBackMemory(systemClock);
  } catch (error) {
    if (!isJournal(2, process.env)) log.fatal(startFailure(error), 'failed to start');
    if (!stopping) await agent.stop();
    throw error;
  }
  process.exitCode = await over;
  // Sockets that a peer keeps open do not delay the exit.
  process.exit();
}
