/** Runs the operations of `folder.ts` for the agent, one at a time. */
import { type FolderRequest, ForeignFolders, perform } from './folder.ts';

const folders = new ForeignFolders();
// The unit's umask must not restrict the modes of new files and folders.
process.umask(0);
process.on('disconnect', () => process.exit());
process.on('message', (request: FolderRequest) => process.send!(perform(folders, request)));
