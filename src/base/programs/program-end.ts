import type { ChildProcess } from 'node:child_process';

export interface ProgramEnd {
  code: number | null;
  signal: NodeJS.Signals | null;
}

/** Waits until the program itself exits or fails to start. Its pipes may be kept open by its children. */
export function untilEnded(child: ChildProcess): Promise<ProgramEnd | Error> {
  return new Promise((resolve) => {
    child.once('exit', (code, signal) => resolve({ code, signal }));
    child.once('error', resolve);
  });
}
