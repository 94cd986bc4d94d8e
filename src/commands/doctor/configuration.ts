import { counted, nounFor, timeText } from '../../base/amounts.ts';
import { plain } from '../../base/foreign-text.ts';
import { problemLine } from '../../config/problem.ts';
import type { StatusReport } from '../../ops/status-report.ts';
import { type CheckLine, type Consultation, failure, ok, warning } from './finding.ts';

const MAX_SHOWN = 10;

/** The configuration, as `tagferry check` sees it. */
export function checkConfigurationFiles(consultation: Consultation): CheckLine[] {
  const { problems, unread, directory, configuration, daemon } = consultation;
  const errors = problems.filter((problem) => problem.severity === 'error');
  const warnings = problems.filter((problem) => problem.severity === 'warning');
  const lines: CheckLine[] = [];
  for (const problem of errors.slice(0, MAX_SHOWN)) {
    lines.push(failure('configuration', problemLine(problem), 'Correct the line, then run `tagferry check`.'));
  }
  if (errors.length > MAX_SHOWN) {
    lines.push(failure('configuration', `and ${errors.length - MAX_SHOWN} more`, 'Run `tagferry check`.'));
  }
  for (const problem of warnings.slice(0, MAX_SHOWN)) {
    lines.push(warning('configuration', problemLine({ ...problem, severity: 'error' }), 'See `tagferry check`.'));
  }
  if (unread.length > 0) {
    const what = `not checked, this user may not read: ${unread.join(', ')}`;
    lines.push(warning('configuration', what, 'Run `sudo tagferry doctor`.'));
  } else if (errors.length === 0) {
    const what = configuration
      ? `${counted(configuration.tags.tags.size, 'tag')}, ${counted(configuration.reactions.length, 'reaction')}`
      : 'only the service knows a secret';
    lines.unshift(ok('configuration', `${directory} is valid: ${what}`));
  }
  return daemon ? [...lines, ...inForceLines(daemon)] : lines;
}

/** Where what runs is not what stands in the files. */
function inForceLines({
  configuration: { refused, restart_needed: keys, changed_credentials: names },
}: StatusReport): CheckLine[] {
  const check = 'configuration.in_force';
  const lines: CheckLine[] = [];
  if (refused) {
    const since = `the service has refused the files since ${timeText(refused.since)} and runs on those of before`;
    const why = plain(refused.problems[0] ?? '');
    lines.push(failure(check, `${since}: ${why}`, 'Mend the lines, then `tagferry reload`.'));
  }
  if (names.length > 0) {
    const what = `changed after the service started: the ${nounFor(names.length, 'credential')} ${names.join(', ')}`;
    lines.push(failure(check, what, 'systemd hands them over at a start alone: `systemctl restart tagferry`.'));
  }
  if (keys.length > 0) {
    const what = `changed, and not followed by a running service: ${keys.join(', ')}`;
    lines.push(warning(check, what, '`systemctl restart tagferry`'));
  }
  return lines;
}
