import { counted, timeText } from '../../base/amounts.ts';
import { plain } from '../../base/foreign-text.ts';
import { identityText, pendingRestart, RESTART } from '../../config/configuration-report.ts';
import { problemLine } from '../../config/problem.ts';
import { countReactions } from '../../config/reactions.ts';
import type { StatusReport } from '../../ops/status-report.ts';
import { type CheckLine, type DoctorContext, failure, ok, warning } from './context.ts';

const MAX_SHOWN = 10;

/** Reports the problems found by `tagferry check`, and files that have not been applied. */
export function checkConfigurationFiles(context: DoctorContext): CheckLine[] {
  const { problems, unread, directory, configuration, agent } = context;
  const errors = problems.filter((problem) => problem.severity === 'error');
  const warnings = problems.filter((problem) => problem.severity === 'warning');
  const apply = `Apply the suggested correction, then run \`tagferry ${agent ? 'reload' : 'check'}\`.`;
  const lines: CheckLine[] = [];
  for (const problem of errors.slice(0, MAX_SHOWN)) {
    lines.push(failure('configuration', problemLine(problem), apply));
  }
  if (errors.length > MAX_SHOWN) {
    lines.push(failure('configuration', `and ${errors.length - MAX_SHOWN} more`, 'Run `tagferry check`.'));
  }
  for (const problem of warnings.slice(0, MAX_SHOWN)) {
    lines.push(warning('configuration', problemLine({ ...problem, severity: 'error' }), apply));
  }
  if (unread.length > 0) {
    const what = `not checked, this user cannot read: ${unread.join(', ')}`;
    lines.push(warning('configuration', what, 'Run `sudo tagferry doctor`.'));
  } else if (errors.length === 0) {
    const what = configuration
      ? `${counted(configuration.tags.tags.size, 'tag')}, ${counted(countReactions(configuration.reactions), 'reaction')}`
      : 'only the service can read the secrets';
    lines.unshift(ok('configuration', `${directory} is valid: ${what}`));
  }
  return agent ? [...inForceLines(agent, errors.length, configuration), ...lines] : lines;
}

/** Returns the differences between the files and the configuration of the running agent. */
function inForceLines(
  { configuration, tags }: StatusReport,
  errors: number,
  files: DoctorContext['configuration'],
): CheckLine[] {
  const check = 'configuration.in_force';
  const lines = [ok(check, `in effect: ${plain(identityText(configuration))}, ${counted(tags, 'tag')}`)];
  const { changed_files: changed, refused } = configuration;
  if (changed.length > 0) {
    const effect =
      errors > 0
        ? 'a reload would reject the files'
        : files
          ? `a reload would apply them: ${counted(files.tags.tags.size, 'tag')} instead of ${tags}`
          : 'a reload would apply them';
    const names = plain(changed.slice(0, MAX_SHOWN).join(', '));
    const next = 'Run `tagferry check`, then `sudo systemctl reload tagferry`.';
    lines.push(warning(check, `changed but not loaded: ${names}; ${effect}`, next));
  }
  if (refused) {
    const rejected = `the agent rejected the files at ${timeText(refused.since)} and is using the previous configuration`;
    const why = plain(refused.problems[0] ?? '');
    lines.push(failure(check, `${rejected}: ${why}`, 'Correct the reported lines, then run `tagferry reload`.'));
  }
  const pending = pendingRestart(configuration);
  if (pending === '') return lines;
  const report = configuration.changed_credentials.length > 0 ? failure : warning;
  return [...lines, report(check, `changed, previous value in effect: ${pending}`, `Run ${RESTART}.`)];
}
