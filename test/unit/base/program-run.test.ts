import { describe, expect, it } from 'vitest';
import { startProblem } from '../../../src/base/programs/program-run.ts';

describe('program that cannot be started', () => {
  it.each([
    [
      'ENOENT',
      '/opt/x does not exist, or the interpreter in its first line does not exist: install it, or correct the path',
    ],
    ['EAGAIN', '/opt/x cannot be started, because the service has too many processes: raise TasksMax in its unit'],
    ['ECHILD', '/opt/x cannot be started (ECHILD): run it as the user of the service to find the cause'],
  ])('is described by a sentence that says what to do after %s', (code, sentence) => {
    expect(startProblem(Object.assign(new Error(`spawn ${code}`), { code }), '/opt/x')).toBe(sentence);
  });
});
