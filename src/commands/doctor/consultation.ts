import { systemClock } from '../../base/clock.ts';
import { messageOf, TagferryError } from '../../base/errors.ts';
import { checkConfiguration, configurationDirectory, readSettingsLeniently } from '../../config/configuration.ts';
import type { Problem } from '../../config/problem.ts';
import { AGENT_WAITING } from '../../control/waiting-routes.ts';
import type { StatusReport } from '../../ops/status-report.ts';
import { SOURCE_KINDS } from '../../sources/kinds.ts';
import { withoutUnread } from '../configuration-verdict.ts';
import { askDaemon, type DaemonPlace, daemonPlace, NoDaemonError } from '../control-client.ts';
import { isMissingSecret, isServiceFolder, serviceEnvironment } from '../service-folder.ts';
import { serviceCondition } from '../service-unit.ts';
import { isServiceView } from '../service-view.ts';
import type { Consultation, Subject } from './finding.ts';

/** Looks at the configuration and for a daemon. Never throws: whatever is wrong is for the checks to say. */
export async function beginConsultation(
  config: string | undefined,
  ownEnvironment: NodeJS.ProcessEnv,
  version: string,
  subject: Subject = 'agent',
): Promise<Consultation> {
  const directory = configurationDirectory(config, ownEnvironment);
  const environment = serviceEnvironment(directory, ownEnvironment);
  const place = daemonPlace(config, environment);
  const isView = isServiceView(environment);
  const { daemon, daemonTrouble } = subject === 'files' ? NOT_ASKED : await lookForDaemon(place);
  const checked = checkConfiguration({ directory, environment, kinds: SOURCE_KINDS });
  const isOwn = isServiceFolder(directory) && !isView;
  // A daemon that runs has its secrets, whoever else may see them.
  const known = (problem: Problem) => daemon === undefined || !isMissingSecret(problem);
  const found = checked.problems.filter(known);
  const { problems, unread } = isOwn ? withoutUnread(found, directory) : { problems: found, unread: [] };
  return {
    subject,
    directory,
    environment,
    clock: systemClock,
    version,
    place,
    settings: readSettingsLeniently({ directory, environment }).settings,
    problems,
    unread,
    configuration: checked.configuration,
    daemon,
    daemonTrouble,
    service: subject === 'files' || isView ? undefined : await serviceCondition(place),
    isService: isView,
    platformAnswers: false,
  };
}

type Running = Pick<Consultation, 'daemon' | 'daemonTrouble'>;

const NOT_ASKED: Running = { daemon: undefined, daemonTrouble: undefined };

async function lookForDaemon(place: DaemonPlace): Promise<Running> {
  try {
    return { daemon: await askDaemon<StatusReport>(place, 'status'), daemonTrouble: undefined };
  } catch (error) {
    return error instanceof NoDaemonError ? NOT_ASKED : { daemon: undefined, daemonTrouble: troubleOf(error) };
  }
}

/** What asking for the state met: a daemon whose start waits says why, and what to do. */
function troubleOf(error: unknown): NonNullable<Consultation['daemonTrouble']> {
  const isWaiting = error instanceof TagferryError && error.code === AGENT_WAITING;
  const next = isWaiting ? error.hint : undefined;
  return { text: messageOf(error), next: next ?? 'Use sudo, or add the user to the group tagferry.' };
}
