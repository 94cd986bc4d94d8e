import { ConfigurationError, messageOf } from '../base/errors.ts';
import type { Logger } from '../base/logger.ts';
import type { Configuration, ReadConfiguration } from '../config/configuration.ts';
import type { KeyName } from '../config/setting-keys.ts';

export interface ReloadingParts {
  /** Reads the files again; throws `ConfigurationError`. */
  read(): Promise<ReadConfiguration>;
  /** Puts a configuration in force part by part; gives the changed keys that wait for a restart. The same one may come twice. */
  apply(configuration: Configuration): Promise<KeyName[]>;
  inForce: Configuration;
  log: Logger;
}

/**
 * Changes to the configuration as the files have it now. One with a problem leaves the old one in force; one that cannot be put in
 * force whole is taken back, for half of it is nobody's wish. Logs what became of it, gives what is in force and the keys that wait
 * for a restart, and throws where it is not the new one.
 */
export async function reloadConfiguration({
  read,
  apply,
  inForce,
  log,
}: ReloadingParts): Promise<{ configuration: ReadConfiguration; needRestart: KeyName[] }> {
  let applying = false;
  try {
    const next = await read();
    applying = true;
    const needRestart = await apply(next);
    const counts = { tags: next.tags.tags.size, reactions: next.reactions.length };
    log.info({ event: 'config.reloaded', ...counts }, 'configuration reloaded');
    if (needRestart.length > 0) {
      log.warn({ event: 'config.restart_needed', keys: needRestart }, 'changed keys require a restart');
    }
    return { configuration: next, needRestart };
  } catch (error) {
    const problems = error instanceof ConfigurationError ? { problems: error.problems } : {};
    const refused = { event: 'config.refused', error: messageOf(error), ...problems };
    if (!applying) log.error(refused, 'the configuration has a problem, the old one stays in force');
    else if (await isPutBack()) {
      log.error(refused, 'the new configuration could not be put in force, the old one is in force again');
    } else {
      log.error(
        { ...refused, event: 'config.half_applied' },
        'a part of the new configuration is in force and a part of the old: restart the service, nothing is lost by it',
      );
    }
    throw error;
  }

  function isPutBack(): Promise<boolean> {
    return apply(inForce).then(
      () => true,
      () => false,
    );
  }
}
