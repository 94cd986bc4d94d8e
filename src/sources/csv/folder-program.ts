/** The process that works in one foreign folder: performs the requests of the agent until the agent ends. */
import { codeOf, messageOf } from '../../base/errors.ts';
import type { FolderReply, FolderRequest } from './folder-protocol.ts';
import { ForeignFolder } from './foreign-folder.ts';

// The umask of the unit must not take away the access that the modes of new files and folders grant.
process.umask(0);

const folder = new ForeignFolder(process.argv[2]!);

process.on('disconnect', () => process.exit());
process.on('message', ({ operation, request }: FolderRequest) => {
  process.send!(perform(operation, request));
});

function perform(operation: FolderRequest['operation'], request: FolderRequest['request']): FolderReply {
  const method = folder[operation] as (request: unknown) => unknown;
  try {
    return { result: method.call(folder, request) };
  } catch (error) {
    return { error: { code: codeOf(error) ?? 'unknown', message: messageOf(error) } };
  }
}
