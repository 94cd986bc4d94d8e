import type { ChildProcess } from 'node:child_process';

export interface ProgramEnd {
  code: number | null;
  signal: NodeJS.Signals | null;
}

/** The program's own end, or why it was not started; its pipes may be held open by what it left behind. */
export function untilEnded(child: ChildProcess): Promise<ProgramEnd | Error> {
  return new Promise((resolve) => {
    child.once('exit', (code, signal) => resolve({ code, signal }));
    child.once('error', resolve);
  });
}
