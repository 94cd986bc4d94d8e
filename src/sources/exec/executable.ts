import { accessSync, constants, statSync } from 'node:fs';
import { codeOf } from '../../base/errors.ts';

/** Why a file could not be started as a program, for who writes its name; `undefined` where it could, or where that cannot be told. */
export function executableProblem(file: string): { reason: string; instead: string } | undefined {
  try {
    if (!statSync(file).isFile()) return { reason: 'is no file', instead: 'write the path of a program' };
    accessSync(file, constants.X_OK);
    return undefined;
  } catch (error) {
    switch (codeOf(error)) {
      case 'ENOENT':
      case 'ENOTDIR':
        return { reason: 'is not there', instead: 'install it, or write the path of a program' };
      case 'EACCES':
        return { reason: 'may not be executed', instead: `chmod 755 ${file}` };
      default:
        return undefined;
    }
  }
}
