import { systemClock } from '../../base/clock.ts';
import { messageOf, TagferryError } from '../../base/errors.ts';
import { checkConfiguration, configurationDirectory, readSettingsLeniently } from '../../config/configuration.ts';
import type { Problem } from '../../config/problem.ts';
import { AGENT_WAITING } from '../../control/waiting-routes.ts';
import type { StatusReport } from '../../ops/status-report.ts';
import { SOURCE_KINDS } from '../../sources/kinds.ts';
import { withOwnEyes } from '../configuration-verdict.ts';
import { askDaemon, daemonPlace, NoDaemonError } from '../control-client.ts';
import { isMissingSecret, isServiceFolder, serviceEnvironment } from '../service-folder.ts';
import { isServiceView } from '../service-view.ts';
import type { Consultation } from './finding.ts';

/** Looks at the configuration and for a daemon. Never throws: whatever is wrong is for the checks to say. */
export async function beginConsultation(
  config: string | undefined,
  ownEnvironment: NodeJS.ProcessEnv,
  version: string,
): Promise<Consultation> {
  const directory = configurationDirectory(config, ownEnvironment);
  const environment = serviceEnvironment(directory, ownEnvironment);
  const place = daemonPlace(config, environment);
  let daemon: StatusReport | undefined;
  let daemonTrouble: Consultation['daemonTrouble'];
  try {
    daemon = await askDaemon<StatusReport>(place, 'status');
  } catch (error) {
    if (!(error instanceof NoDaemonError)) daemonTrouble = troubleOf(error);
  }
  const checked = checkConfiguration({ directory, environment, kinds: SOURCE_KINDS });
  const isOwn = isServiceFolder(directory) && !isServiceView(environment);
  // A daemon that runs has its secrets, whoever else may see them.
  const known = (problem: Problem) => daemon === undefined || !isMissingSecret(problem);
  const problems = (isOwn ? withOwnEyes(checked.problems, directory) : checked.problems).filter(known);
  return {
    directory,
    environment,
    clock: systemClock,
    version,
    place,
    settings: readSettingsLeniently({ directory, environment }).settings,
    problems,
    configuration: checked.configuration,
    daemon,
    daemonTrouble,
    isService: isServiceView(environment),
    platformAnswers: false,
  };
}

/** What asking for the state met: a daemon whose start waits says why, and what to do. */
function troubleOf(error: unknown): NonNullable<Consultation['daemonTrouble']> {
  const isWaiting = error instanceof TagferryError && error.code === AGENT_WAITING;
  const next = isWaiting ? error.hint : undefined;
  return { text: messageOf(error), next: next ?? 'Use sudo, or add the user to the group tagferry.' };
}
