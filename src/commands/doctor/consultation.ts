import { readdirSync } from 'node:fs';
import { join } from 'node:path';
import type { StatusReport } from '../../agent/status-report.ts';
import { systemClock } from '../../clock.ts';
import { checkConfiguration, configurationDirectory, readSettingsLeniently } from '../../config/configuration.ts';
import type { Problem } from '../../config/problem.ts';
import { messageOf } from '../../errors.ts';
import { askDaemon, daemonPlace, NoDaemonError } from '../control-client.ts';
import { serviceEnvironment } from '../service-folder.ts';
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
  let daemonTrouble: string | undefined;
  try {
    daemon = await askDaemon<StatusReport>(place, 'status');
  } catch (error) {
    if (!(error instanceof NoDaemonError)) daemonTrouble = messageOf(error);
  }
  const checked = checkConfiguration({ directory, environment });
  const elsewhere = (problem: Problem) => isSecretElsewhere(problem, directory, daemon !== undefined);
  return {
    directory,
    environment,
    clock: systemClock,
    version,
    place,
    settings: readSettingsLeniently({ directory, environment }).settings,
    problems: checked.problems.filter((problem) => !elsewhere(problem)),
    configuration: checked.configuration,
    daemon,
    daemonTrouble,
    platformAnswers: false,
  };
}

/** A secret that is missing here but that the service has: it runs with it, or it is encrypted to this machine. */
function isSecretElsewhere(problem: Problem, directory: string, isRunning: boolean): boolean {
  const key = /^(CLIENT_SECRET|TECHNICAL_PASSWORD) is missing/.exec(problem.reason)?.[1];
  if (key === undefined) return false;
  return isRunning || encryptedCredentials(directory).includes(`${key.toLowerCase()}.cred`);
}

/** Names of the credentials that only systemd can decrypt. */
function encryptedCredentials(directory: string): string[] {
  try {
    return readdirSync(join(directory, 'credentials')).filter((name) => name.endsWith('.cred'));
  } catch {
    return [];
  }
}
