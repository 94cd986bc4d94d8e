import { problemLine, sortProblems } from '../../config/problem.ts';
import { verifyConfiguration } from '../configuration/verdict.ts';
import { isServiceFolder, outputOf } from '../service/service-folder.ts';
import { UNIT } from '../service/service-unit.ts';
import { withoutCredentials } from './answers.ts';
import type { Screen } from './dialogue.ts';

/**
 * Shows problems in the written files and the next commands. A running service requires a restart, because a reload
 * does not load new credentials. If there are errors, the service is not enabled and the exit status is 78. Returns
 * whether the configuration is valid.
 */
export async function showNextSteps(directory: string, { say, show }: Screen): Promise<boolean> {
  const { problems, warnings } = await verifyConfiguration(directory, withoutCredentials(process.env));
  for (const problem of sortProblems([...problems, ...warnings])) say(problemLine(problem));
  const isService = isServiceFolder(directory);
  const config = isService ? '' : ` --config ${directory}`;
  if (problems.length > 0) {
    process.exitCode = 78;
    say('\nThe service cannot start with this configuration. Correct the lines above, then run:');
    show(`${isService ? 'sudo ' : ''}tagferry check${config}`);
    return false;
  }
  say('\nNext:');
  show(isService ? await serviceStart() : `tagferry run${config}`);
  show(`tagferry doctor${config}`);
  show(`tagferry status${config}`);
  return true;
}

/** Enables the service, which the package leaves disabled until it is configured. Returns the command that applies the configuration. */
export async function serviceStart(): Promise<string> {
  const isEnabled = (await outputOf('systemctl', ['enable', '--quiet', UNIT])) !== undefined;
  const text = await outputOf('systemctl', ['show', '--property=LoadState,ActiveState', UNIT]);
  const unit = Object.fromEntries((text ?? '').split('\n').map((line) => line.split('=')));
  if (unit.LoadState === 'masked') return 'sudo systemctl unmask tagferry && sudo systemctl enable --now tagferry';
  // systemd loads credentials only when the unit starts.
  if (['active', 'reloading', 'activating'].includes(unit.ActiveState)) return 'sudo systemctl restart tagferry';
  return isEnabled ? 'sudo systemctl start tagferry' : 'sudo systemctl enable --now tagferry';
}
