import { problemLine } from '../../config/problem.ts';
import { counted } from '../amounts.ts';
import { type CheckLine, type Consultation, failure, ok, warning } from './finding.ts';

const MOST_SHOWN = 10;

/** The configuration, as `tagferry check` sees it. */
export function checkConfigurationFiles({ problems, directory, configuration }: Consultation): CheckLine[] {
  const errors = problems.filter((problem) => problem.severity === 'error');
  const warnings = problems.filter((problem) => problem.severity === 'warning');
  const lines: CheckLine[] = [];
  for (const problem of errors.slice(0, MOST_SHOWN)) {
    lines.push(failure('configuration', problemLine(problem), 'Mend the line, then run `tagferry check`.'));
  }
  if (errors.length > MOST_SHOWN) {
    lines.push(failure('configuration', `and ${errors.length - MOST_SHOWN} more`, 'Run `tagferry check`.'));
  }
  for (const problem of warnings.slice(0, MOST_SHOWN)) {
    lines.push(warning('configuration', problemLine({ ...problem, severity: 'error' }), 'See `tagferry check`.'));
  }
  if (errors.length === 0) {
    const what = configuration
      ? `${counted(configuration.tags.tags.size, 'tag')}, ${counted(configuration.reactions.length, 'reaction')}`
      : 'a secret is known to the service alone';
    lines.unshift(ok('configuration', `${directory} can be read: ${what}`));
  }
  return lines;
}
