import { plain } from '../../base/foreign-text.ts';
import { conflictWords } from '../../base/identity-conflicts.ts';
import { type CheckLine, type Consultation, failure } from './finding.ts';

/** Another agent with the identity of this gateway, as far as the running agent has noticed. */
export function checkIdentity({ daemon }: Consultation): CheckLine[] {
  return (daemon?.identity_conflicts ?? []).map(({ kind, source }) => {
    const { what, hint } = conflictWords(kind, source === null ? null : plain(source));
    return failure('identity', what, hint);
  });
}
