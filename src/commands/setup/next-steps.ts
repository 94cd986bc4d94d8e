import { problemLine, sortProblems } from '../../config/problem.ts';
import { judgeConfiguration } from '../configuration-verdict.ts';
import { isServiceFolder } from '../service-folder.ts';
import { withoutCredentials } from './answers.ts';
import { serviceStart } from './service-start.ts';

/**
 * What `check` thinks of what was written, and what comes next: on a service that runs, a restart, which loads new credentials too. Sets
 * the exit status 78 where there are problems.
 */
export async function tellNextSteps(directory: string, say: (text: string) => void): Promise<boolean> {
  const { problems, warnings } = await judgeConfiguration(directory, withoutCredentials(process.env));
  for (const problem of sortProblems([...problems, ...warnings])) say(problemLine(problem));
  const config = isServiceFolder(directory) ? '' : ` --config ${directory}`;
  const start = isServiceFolder(directory) ? await serviceStart() : `tagferry run${config}`;
  say(`\nNext:\n  ${start}\n  tagferry doctor${config}\n  tagferry status${config}`);
  if (problems.length > 0) process.exitCode = 78;
  return problems.length === 0;
}
