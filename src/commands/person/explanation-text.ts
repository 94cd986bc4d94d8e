import { plain } from '../../base/foreign-text.ts';
import { table } from '../../base/table.ts';
import type { Explanation, Reason } from './explain.ts';
import { nameOfPermitable } from './named-objects.ts';
import { typesText } from './permission-record.ts';

/** An explanation for a terminal. */
export function explanationText(explanation: Explanation): string {
  const { user, object, sees, direct, inherited, unknowns } = explanation;
  const name = nameOfPermitable(object);
  const verdicts = {
    yes: `${user} sees ${name}.`,
    'if a member': `${user} sees ${name} as a member of a user group that has the permission, else not.`,
    unknown: `Nothing that can be seen from here lets ${user} see ${name}.`,
  };
  return [
    verdicts[sees],
    ...section('Direct', direct, () => `on ${name} itself`),
    ...section('Inherited', inherited, ({ way }) => way.toReversed().join(', ')),
    ...(unknowns.length === 0 ? [] : ['', 'Not told', ...unknowns.map((one) => `  ${plain(one)}`)]),
  ].join('\n');
}

function section(title: string, reasons: readonly Reason[], words: (reason: Reason) => string): string[] {
  if (reasons.length === 0) return ['', title, '  none'];
  const rows = reasons.map((reason) => [
    `  permission ${reason.id}`,
    plain(typesText(reason.types)),
    `${words(reason)}${reason.usergroup === undefined ? '' : `, for usergroup/${reason.usergroup}`}`,
  ]);
  return ['', title, table(rows)];
}
