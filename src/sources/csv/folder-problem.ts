import { codeOf } from '../../base/errors.ts';

/** Why a folder cannot be used, and what to do. */
export function folderProblem(folder: string, error: unknown): { problem: string; hint?: string } {
  switch (codeOf(error)) {
    case 'ENOENT':
      return { problem: `there is no folder ${folder}`, hint: `install -d -o tagferry -g tagferry ${folder}` };
    case 'EACCES':
    case 'EPERM':
      return {
        problem: `the service may not use ${folder}`,
        hint: `chgrp tagferry ${folder} && chmod g+rwx ${folder}`,
      };
    case 'EROFS':
      return {
        problem: `the service may only read ${folder}`,
        hint: 'the drop-in csv-folder.conf lets it write there (docs/sources.md, "Files")',
      };
    case 'ENOTDIR':
      return { problem: `${folder} is no folder`, hint: 'name the folder that the files come into' };
    default:
      return { problem: `${folder}: ${codeOf(error) ?? String(error)}` };
  }
}
