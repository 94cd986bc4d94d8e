import { problemLine, sortProblems } from '../../config/problem.ts';
import { judgeConfiguration } from '../configuration-verdict.ts';
import { isServiceFolder } from '../service-folder.ts';
import { withoutCredentials } from './answers.ts';
import type { Screen } from './dialogue.ts';
import { serviceStart } from './service-start.ts';

/**
 * Shows what `check` reports of the files that were written, and the next commands: on a running service a restart, which also loads new
 * credentials. A configuration with errors is not enabled; the exit status is then 78.
 */
export async function tellNextSteps(directory: string, { say, show }: Screen): Promise<boolean> {
  const { problems, warnings } = await judgeConfiguration(directory, withoutCredentials(process.env));
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
